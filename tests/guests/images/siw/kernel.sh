# Builds User-Mode Linux with siw in it from Debian's kernel source package. Sourced by `image`.
# shellcheck shell=bash disable=SC2154

# Newer than Debian 12's own: User-Mode Linux before 6.16 cannot run on processors with large register state (AMX).
suite=trixie-backports

# A package manager of its own beside the machine's, which knows this suite only.
own_apt() { # COMMAND ARGUMENT...
    local apt=$cache/apt mirror
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/state"
    : >"$apt/status"
    # The machine's own mirror, if it has one.
    mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | awk '/\/debian\/*$/ && !found { print; found = 1 }')
    mirror=${mirror:-http://deb.debian.org/debian}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
    cat >"$apt/conf" <<C
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State "$apt/state";
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
C
    APT_CONFIG=$apt/conf "$@"
}

# Prints the path of the newest kernel source package, which stays in the cache.
kernel_source() {
    own_apt apt-get update -qq --error-on=any || unable "the package lists of Debian's $suite cannot be had; is there a network?"
    local package version file
    package=$(own_apt apt-cache search --names-only '^linux-source-[0-9.]+$' | cut -d' ' -f1 | sort -V | tail -n1)
    [ -n "$package" ] || unable "Debian's $suite has no linux-source package"
    version=$(own_apt apt-cache show "$package" | sed -n 's/^Version: //p' | sort -V | tail -n1)
    file=$cache/${package}_${version//:/%3a}_all.deb
    if [ ! -e "$file" ]; then
        say "downloading $package $version" >&2
        (cd "$cache" && own_apt apt-get download -qq "$package=$version") || unable "$package cannot be downloaded"
    fi
    echo "$file"
}

# The parts of the source that the guest needs, into a directory.
unpack() { # PACKAGE DIRECTORY
    local archive
    archive=$(dpkg-deb --fsys-tarfile "$1" | tar -t | grep 'linux-source-.*\.tar\.xz$')
    dpkg-deb --fsys-tarfile "$1" | tar -xO "$archive" | xz -dc -T0 | tar -x -C "$2" --strip-components=1 \
        --exclude='*/Documentation/*/*' --exclude='*/drivers/gpu/drm/*.[ch]' --exclude='*/sound/*.[ch]' \
        --exclude='*/arch/arm*/*.[chS]' --exclude='*/arch/mips/*.[chS]' --exclude='*/arch/powerpc/*.[chS]' \
        --exclude='*.dts' --exclude='*.dtsi' --exclude='*/tools/testing/selftests/*'
}

configure() { # in the source
    make -s ARCH=um KCONFIG_ALLCONFIG="$guest/kernel.config" allnoconfig >"$1" 2>&1 || { cat "$1"; return 1; }
    local option
    for option in $(grep -o '^CONFIG_[A-Z0-9_]*=y' "$guest/kernel.config"); do
        grep -qx "$option" .config || fail "$option did not come out of the configuration"
    done
}

siw_with_parameters() { # in the source
    local directory=drivers/infiniband/sw/siw found
    sed -E -i -f "$guest/siw-parameters.sed" "$directory"/*.[ch]
    found=$(cat "$directory"/*.c | grep -c '^module_param(')
    [ "$found" = 9 ] || fail "siw has got $found parameters instead of 9: its source has changed"
}

build_kernel() { # DIRECTORY
    local package source=$1/source log=$1/log
    package=$(kernel_source)
    mkdir "$source"
    say "unpacking $(basename "$package")"
    unpack "$package" "$source"
    cd "$source"
    configure "$log"
    siw_with_parameters
    say "building the guest's kernel: some 6 minutes on two cores"
    nice make -s ARCH=um -j"$(nproc)" linux >"$log" 2>&1 || { tail -n 30 "$log"; fail "the kernel does not build"; }
    strip -o "$1/linux" linux
    basename "$package" >"$1/source-package"
    cd "$1"
    rm -r "$source" "$log"
}
