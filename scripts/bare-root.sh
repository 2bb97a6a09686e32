# To be sourced: makes a bare Debian by debootstrap, from where this machine gets its packages: its sources
# of that release (of another than its own, the first of its mirrors, or $DEBIAN_MIRROR), its apt options, its
# certificates and the variables that name proxies are taken over. The sourcing script sets `bare` (a folder
# below target/), and may set `release` (bookworm).
# shellcheck shell=bash disable=SC2154 # `bare` is the sourcing script's.

release=${release:-bookworm}

# sources: this machine's repositories of the release, as lines of a sources.list.
sources() {
    local own
    own=$(own_sources)
    if [ -n "$own" ]; then
        printf '%s\n' "$own"
    else
        local mirror=${DEBIAN_MIRROR:+$DEBIAN_MIRROR/debian}
        mirror=${mirror:-$(release=bookworm own_sources | awk '$4 == "bookworm" { print $3; exit }')}
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} $release main"
    fi
}

own_sources() {
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 2> /dev/null |
        awk -v release=$release -v keys=$keys '$1 == "Debian" && index($3, release) == 1 {
            print "deb [signed-by=" keys "] " $2, $3, $4 }' | sort -u
}

# make_root ROOT PACKAGE,...: afresh; packages that an earlier one downloaded are kept.
make_root() {
    local root=$1 packages=$2 first proxy
    rm -rf "$root"
    mkdir -p "$root" "$bare/archives/partial"
    sources > "$bare/sources.list"
    first=$(awk -v release=$release '$4 == release { print $3; exit }' "$bare/sources.list")
    proxy=$(apt-config shell proxy Acquire::http::Proxy 2> /dev/null)
    eval "$proxy"
    echo "making a bare Debian ($release) below ${root#"$PWD/"}"
    env ${proxy:+http_proxy="$proxy"} debootstrap --variant=minbase --include="$packages" \
        --cache-dir="$bare/archives" $release "$root" ${first:+"$first"} > "$root.log" 2>&1 ||
        { tail -n 20 "$root.log"; echo "FAILED: debootstrap"; return 1; }
    [ ! -s "$bare/sources.list" ] || cp "$bare/sources.list" "$root/etc/apt/sources.list"
    [ ! -d /etc/apt/apt.conf.d ] || cp -r /etc/apt/apt.conf.d "$root/etc/apt/"
    # Options that this machine has may empty the directory of downloads, which the next run uses.
    printf '%s\n' '#clear DPkg::Post-Invoke;' '#clear APT::Update::Post-Invoke;' \
        '#clear APT::Update::Post-Invoke-Success;' 'APT::Keep-Downloaded-Packages "true";' \
        > "$root/etc/apt/apt.conf.d/zz-bare"
}

# network ROOT: what this machine knows of the network.
network() {
    local root=$1 file certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    for file in /etc/resolv.conf /etc/hosts; do cp -L $file "$root$file"; done
    mkdir -p "$root/opt" "$root/usr/local/share/ca-certificates"
    [ ! -r "$certificates" ] || cp -L "$certificates" "$root/opt/certificates.crt"
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2> /dev/null || true
}

# network_variables ROOT: those of this machine's by which programs there reach it, NAME=VALUE each.
network_variables() {
    [ ! -e "$1/opt/certificates.crt" ] || printf '%s\0' SSL_CERT_FILE=/opt/certificates.crt \
        GIT_SSL_CAINFO=/opt/certificates.crt
    env -0 | grep -zEi '^(https?|ftp|all|no)_proxy=' || true
}
