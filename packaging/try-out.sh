# cargo xtask deb --test: the package in a copy of this system, which is gone with its mounts.
#     sh -eu try-out.sh FIRST.deb SECOND.deb
# Runs in mount, process and network namespaces of its own.
first=$1 second=$2
step() { echo "deb: $*"; }
fail() { echo "deb: FAILED: $*" >&2; exit 1; }
# Gives up after minutes, which only a hang takes.
until_it() { n=0; until "$@" >/dev/null 2>&1; do n=$((n + 1)); [ $n -lt 6000 ] || fail "never: $*"; sleep 0.05; done; }

if [ "${3:-}" != inside ]; then
    mount -t tmpfs -o mode=755 none /mnt
    mkdir /mnt/upper /mnt/work /mnt/root
    mount -t overlay none -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
    for dir in dev sys; do mount --rbind /$dir /mnt/root/$dir; done
    mount -t proc none /mnt/root/proc
    # What lies above other mounts is not in the overlay: the script and the packages are copied.
    mkdir /mnt/root/packages
    cp "$0" "$first" "$second" /mnt/root/packages/
    exec chroot /mnt/root sh -eu "/packages/${0##*/}" "/packages/${first##*/}" "/packages/${second##*/}" inside
fi

ip link set lo up
rm -rf /etc/dsync /usr/bin/dsync
export HOME=/root XDG_CONFIG_HOME=/root/.config PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive

step install
dpkg -i "$first" >/dev/null
dpkg --verify dsync
dsync --version | grep -q '^dsync'
for file in /usr/lib/systemd/system/dsync.service /usr/lib/systemd/system/dsync.socket \
    /usr/share/man/man1/dsync.1.gz /usr/share/bash-completion/completions/dsync \
    /usr/share/doc/dsync/copyright /usr/share/doc/dsync/changelog.gz; do
    # A system without documentation has none of packages either.
    dpkg -L dsync | grep -qx "$file" || fail "no $file in the package"
done
example=/usr/share/doc/dsync/examples/serve.toml
[ -f $example ] || { mkdir -p "${example%/*}"; dpkg-deb --fsys-tarfile "$first" | tar -xO ./usr/share/doc/dsync/examples/serve.toml >$example; }

step start, with the sample configuration
useradd --system --user-group --create-home --home-dir /var/lib/dsync-backup --shell /bin/sh dsync-backup 2>/dev/null ||
    id dsync-backup >/dev/null
install -d -o dsync-backup -g dsync-backup -m 700 /srv/backups
touch /srv/backups/.dsync-share
install -d -m 755 /etc/dsync
install -m 644 $example /etc/dsync/serve.toml
dsync key --file /etc/dsync/server.key >/dev/null 2>&1
# sshd is not what this is about: the shell of the login runs its command here.
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >/usr/local/bin/login
chmod 755 /usr/local/bin/login
dsync enroll --yes -e /usr/local/bin/login --share backups --role append --key laptop --address 127.0.0.1 host >/dev/null
dsync serve --check | grep -q 'laptop: append'
serve() { dsync serve >>/log 2>&1 & server=$!; until_it grep -q listening /log; }
serve

step push
mkdir /src
head -c 40000000 /dev/urandom >/src/big
echo one >/src/small
dsync -a /src/small 127.0.0.1::backups/one/
cmp /src/small /srv/backups/laptop/one/small

step upgrade while a session runs
# A machine on which the upgrade takes longer than the push tries again with a slower one.
for rate in 8000 4000 2000 1000 500 end; do
    [ $rate != end ] || fail 'the session was over before the upgrade was'
    rm -rf /srv/backups/laptop/two
    dsync -a --bwlimit=$rate /src/big 127.0.0.1::backups/two/ &
    push=$!
    until_it sh -c 'dsync serve --status | grep -q key=laptop'
    dpkg -i "$second" >/dev/null
    ! kill -0 $push 2>/dev/null || break
    wait $push
    dpkg -i "$first" >/dev/null 2>&1
done
[ "$(dpkg-query -W -f '${Version}' dsync)" != "$(dpkg-deb -f "$first" Version)" ] || fail 'the version is the old one'
# The server that stands serves on, and lets its sessions end when it is asked to.
dsync -a /src/small 127.0.0.1::backups/three/
kill $server
wait $push
cmp /src/big /srv/backups/laptop/two/big
wait $server
: >/log
serve
dsync -a /src/small 127.0.0.1::backups/four/
cmp /src/small /srv/backups/laptop/four/small

step remove
kill $server
wait $server
dpkg -r dsync >/dev/null
[ ! -e /usr/bin/dsync ] && [ ! -e /usr/lib/systemd/system/dsync.service ]
[ -f /etc/dsync/serve.toml ] && [ -f /etc/dsync/server.key ]

step not beside another program of this name
mkdir -p /other/DEBIAN /other/usr/bin
printf 'Package: other\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: other\n' >/other/DEBIAN/control
echo other >/other/usr/bin/dsync
dpkg-deb -Znone --build /other /other.deb >/dev/null
dpkg -i /other.deb >/dev/null
if dpkg -i "$first" >/said 2>&1; then fail 'installed over the program of another package'; fi
grep -q 'the package other has a program /usr/bin/dsync' /said
grep -q other /usr/bin/dsync
step ok
