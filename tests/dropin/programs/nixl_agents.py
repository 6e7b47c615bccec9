"""nixl_agents server|client FOLDER: two agents of NIXL, which share a folder. The client reads the
server's memory and writes into it, and both compare."""

import os
import sys
import time

import numpy
from nixl_cu12 import nixl_agent, nixl_agent_config

BYTES = 1 << 20
LIMIT = 60

role, folder = sys.argv[1:]


def put(name, content):
    """Shows the other agent a file, whole."""
    path = os.path.join(folder, name)
    with open(path + ".new", "wb") as file:
        file.write(content)
    os.rename(path + ".new", path)


def await_result(what, look):
    """What `look` returns, once that is true."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        result = look()
        if result:
            return result
        time.sleep(0.001)
    sys.exit(f"{role}: {what} does not come")


def get(name):
    """The content of a file that the other agent has put there."""
    path = os.path.join(folder, name)
    await_result(name, lambda: os.path.exists(path))
    with open(path, "rb") as file:
        return file.read()


agent = nixl_agent(role, nixl_agent_config(backends=["UCX"]))
pattern = numpy.arange(BYTES, dtype=numpy.uint8)
memory = pattern.copy() if role == "server" else numpy.zeros(BYTES, dtype=numpy.uint8)
assert agent.register_memory([(memory.ctypes.data, BYTES, 0, "")], "DRAM")
own = agent.get_xfer_descs([(memory.ctypes.data, BYTES, 0)], "DRAM")


def transfer(kind, peer, theirs):
    handle = agent.initialize_xfer(kind, own, theirs, peer, kind.encode())
    assert agent.transfer(handle) != "ERR"

    def is_done():
        state = agent.check_xfer_state(handle)
        assert state != "ERR"
        return state == "DONE"

    await_result(kind, is_done)


if role == "server":
    put("metadata", agent.get_agent_metadata())
    put("descriptors", agent.get_serialized_descs(own))
    await_result("a notification", agent.get_new_notifs)
    get("written")
    assert (memory == 7).all()
    put("compared", b"")
else:
    peer = agent.add_remote_agent(get("metadata"))
    theirs = agent.deserialize_descs(get("descriptors"))
    transfer("READ", peer, theirs)
    assert (memory == pattern).all()
    memory[:] = 7
    transfer("WRITE", peer, theirs)
    put("written", b"")
    get("compared")
print("all compared")
