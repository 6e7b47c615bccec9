# Functions for the scripts of tools/: missing packages, the build, two hosts made of network
# namespaces.
# shellcheck shell=bash

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { printf '\n== %s\n' "$*"; }
fail() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

need_root() {
    [ "$(id -u)" = 0 ] || fail "needs root: it makes network namespaces and loads an XDP program; run it as root"
}

# Packages that the build of xwarp needs. Debian packages are named as PACKAGE:FILE, where the
# package provides FILE.
compilers=(clang:/usr/bin/clang gcc:/usr/bin/gcc make:/usr/bin/make pkg-config:/usr/bin/pkg-config
    libelf-dev:/usr/include/libelf.h zlib1g-dev:/usr/include/zlib.h)

# Prints the named Debian packages that are missing.
missing_packages() {
    local entry
    for entry in "$@"; do
        [ -e "${entry#*:}" ] || echo "${entry%%:*}"
    done
}

# Installs the named Debian packages that are missing.
need_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "these packages are missing and this is not Debian: ${missing[*]}; install them"
    say "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

need_cargo() {
    command -v cargo >/dev/null || fail "cargo is missing; install Rust 1.91 or newer from https://rustup.rs"
}

# Toolchain of Miri and of rustdoc's JSON, whose format differs between toolchains.
# shellcheck disable=SC2034 # for tools/api and soundness.sh
nightly=${XWARP_NIGHTLY:-nightly-2026-10-30}

# Installs a toolchain with rustup if it is missing. Fails with a reason if it is not available.
need_toolchain() { # NAME
    local said
    ! cargo "+$1" --version >/dev/null 2>&1 || return 0
    command -v rustup >/dev/null || { echo "no Rust $1: there is no rustup to install it with"; return 1; }
    said=$(timeout 600 rustup toolchain install "$1" --profile minimal --no-self-update 2>&1) ||
        { echo "no Rust $1: rustup cannot install it: $(tail -n 1 <<<"$said")"; return 1; }
}

build_packages() {
    need_packages "${compilers[@]}" iproute2:/usr/sbin/ip ethtool:/usr/sbin/ethtool
    need_cargo
}

# Makes cargo end programs of tests that hang, and name them.
limit_suites() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
    export "CARGO_TARGET_${host}_RUNNER=$top/tools/lib/limited.sh"
}

# Installs the packages that guests with the kernel's siw need. Fails if they are not available.
guest_packages() {
    (need_packages flex:/usr/bin/flex bison:/usr/bin/bison bc:/usr/bin/bc xz-utils:/usr/bin/xz \
        libibverbs-dev:/usr/include/infiniband/verbs.h librdmacm-dev:/usr/include/rdma/rdma_cma.h \
        ibverbs-providers:/etc/libibverbs.d/siw.driver ibverbs-utils:/usr/bin/ibv_devinfo rdmacm-utils:/usr/bin/rping \
        perftest:/usr/bin/ib_send_bw tshark:/usr/bin/tshark procps:/usr/bin/ps) || {
        echo "no guest: these packages are needed, and cannot be installed; is there a network?" >&2
        return 1
    }
}

# Removes a namespace, and processes that a killed run left in it.
remove_host() {
    local pid
    [ -e "/run/netns/$1" ] || return 0
    for pid in $(ip netns pids "$1" 2>/dev/null); do kill "$pid" 2>/dev/null || true; done
    for _ in $(seq 50); do
        [ -n "$(ip netns pids "$1" 2>/dev/null)" ] || break
        sleep 0.1
    done
    for pid in $(ip netns pids "$1" 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done
    ip netns delete "$1"
}

# make_hosts A B MTU: two namespaces joined by a veth pair, both ends called eth1,
# 10.77.0.1 and 10.77.0.2.
make_hosts() {
    ip netns add "$1"
    ip netns add "$2"
    local host number=1
    ip link add eth1 netns "$1" type veth peer name eth1 netns "$2"
    for host in "$1" "$2"; do
        ip -n "$host" link set lo up
        ip -n "$host" link set eth1 mtu "$3" up
        ip -n "$host" addr add "10.77.0.$number/24" dev eth1
        number=$((number + 1))
    done
}
