#!/usr/bin/env python3
"""initramfs.py OUT [MODULE...]: writes OUT/initramfs.cpio from OUT/kernel, OUT/busybox
and this directory's agent.c and guest-init, and compiles OUT/tsc-khz. Part of fetch; run it again after a
change of guest-init. Modules named are added with what they depend on."""
import lzma, os, re, subprocess, sys

out, more = sys.argv[1], sys.argv[2:]
here = os.path.dirname(os.path.abspath(__file__))
NOW = 'virtio_pci virtio_console overlay 9pnet_virtio 9p'.split()      # loaded before the root is there
LATER = 'virtio_net igb xsk_diag veth 8021q bonding'.split() + more

found, builtin = {}, set()
for d, _, fs in os.walk(out + '/kernel'):
    for f in fs:
        m = re.match(r'(.*)\.ko(\.xz|\.zst)?$', f)
        if m:
            found[m[1].replace('-', '_')] = os.path.join(d, f)
        elif f == 'modules.builtin':
            builtin = {os.path.basename(l.strip())[:-3].replace('-', '_') for l in open(os.path.join(d, f))}

def load(path):
    if path.endswith('.xz'):
        return lzma.open(path).read()
    if path.endswith('.zst'):
        return subprocess.run(['zstd', '-qdc', path], capture_output=True, check=True).stdout
    return open(path, 'rb').read()

files, order = {}, []
def add(name):
    name = name.replace('-', '_')
    if name in builtin or name in order:
        return
    if name not in found:
        print('initramfs: no module', name, file=sys.stderr)
        return
    data = load(found[name])
    deps = [d for d in re.search(rb'\0?depends=([^\0]*)\0', data)[1].decode().split(',') if d]
    for d in deps:
        add(d)
    files['modules/%s.ko' % name] = data
    order.append(name)
lists = {}
for group, names in (('now', NOW), ('later', LATER)):
    for n in names:
        before = len(order)
        add(n)
        lists.setdefault(group, []).extend(order[before:])
        if group == 'later':
            files['modules/%s.dep' % n.replace('-', '_')] = ' '.join(order[before:]).encode()
# what a module needs, in order, for insmod
def needs(name, seen):
    for d in [d for d in re.search(rb'\0?depends=([^\0]*)\0', files['modules/%s.ko' % name])[1].decode().replace('-', '_').split(',') if d]:
        if d not in seen and d in order:
            needs(d, seen)
    if name not in seen:
        seen.append(name)
    return seen
for n in order:
    files['modules/%s.dep' % n] = ' '.join(needs(n, [])).encode()
files['modules/now'] = ' '.join(lists['now']).encode()

agent = out + '/agent'
subprocess.run(['gcc', '-O2', '-Wall', '-static', '-s', '-o', agent, here + '/agent.c'], check=True)
# For lab, not for the guest.
subprocess.run(['gcc', '-O2', '-Wall', '-s', '-o', out + '/tsc-khz', here + '/tsc-khz.c'], check=True)
for d, _, fs in os.walk(out + '/busybox'):
    if 'busybox' in fs and d.endswith('bin'):
        files['bin/busybox'] = open(os.path.join(d, 'busybox'), 'rb').read()
files['agent'] = open(agent, 'rb').read()
files['init'] = open(here + '/guest-init', 'rb').read()

with open(out + '/initramfs.cpio', 'wb') as o:
    ino = 0
    def put(name, mode, data=b''):
        global ino
        ino += 1
        n = name.encode() + b'\0'
        h = b'070701' + b''.join(b'%08X' % x for x in (ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(n), 0))
        o.write(h + n + b'\0' * (-(len(h) + len(n)) % 4) + data + b'\0' * (-len(data) % 4))
    for d in 'bin dev proc sys modules lower upper root'.split():
        put(d, 0o40755)
    for f, data in sorted(files.items()):
        put(f, 0o100755, data)
    put('TRAILER!!!', 0)
print('initramfs: %d modules' % len(order), file=sys.stderr)
