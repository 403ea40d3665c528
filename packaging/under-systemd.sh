# cargo xtask deb --test: the units of the package under systemd itself, in a copy of this system that is
# gone with its mounts.
#     sh -eu under-systemd.sh FIRST.deb SECOND.deb
# The first process of a container, which is made here, becomes systemd; the steps run beside it.
first=$1 second=$2 part=${3:-outside}
step() { echo "systemd: $*"; }
fail() { echo "systemd: FAILED: $*" >&2; [ "$part" != inside ] || journalctl --no-pager -n 60 >&2; exit 1; }
# Gives up after minutes, which only a hang takes.
until_it() { n=0; until "$@" >/dev/null 2>&1; do n=$((n + 1)); [ $n -lt 6000 ] || fail "never: $*"; sleep 0.05; done; }

if [ "$part" = outside ]; then
    unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup sh -eu "$0" "$first" "$second" boot &
    container=$!
    trap 'kill -KILL $container 2>/dev/null || true' EXIT
    until_it grep -q . /proc/$container/task/$container/children
    init=$(tr -d ' ' </proc/$container/task/$container/children)
    # A shell until it is systemd, which answers before its journal does.
    until_it nsenter --target "$init" --all systemctl is-active basic.target
    nsenter --target "$init" --all sh -eu /packages/under-systemd.sh /packages/first.deb /packages/second.deb inside
    exit
fi

if [ "$part" = boot ]; then
    mount -t tmpfs -o mode=755 none /mnt
    mkdir /mnt/upper /mnt/work /mnt/root
    mount -t overlay none -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
    mkdir /mnt/root/packages
    cp "$0" /mnt/root/packages/under-systemd.sh
    cp "$first" /mnt/root/packages/first.deb
    cp "$second" /mnt/root/packages/second.deb
    cd /mnt/root
    mount -t proc none proc
    mount -t sysfs none sys
    mount --rbind /dev dev
    for dir in run tmp; do mount -t tmpfs none $dir; done
    # Beside the hierarchies of version 1, systemd wants one of its own.
    if grep -q '^[1-9]' /proc/self/cgroup; then
        mount -t tmpfs none sys/fs/cgroup
        mkdir sys/fs/cgroup/systemd sys/fs/cgroup/unified
        mount -t cgroup -o none,name=systemd none sys/fs/cgroup/systemd
        mount -t cgroup2 none sys/fs/cgroup/unified
    else
        mount -t cgroup2 none sys/fs/cgroup
    fi
    pivot_root . mnt
    cd /
    umount --lazy /mnt
    # Nothing of this system starts but what the steps start.
    rm -rf /etc/systemd/system /etc/dsync /usr/bin/dsync /etc/rc?.d/S*
    mkdir /etc/systemd/system
    exec env -i container=dsync-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --unit=basic.target --show-status=0 >/dev/null 2>&1
fi

ip link set lo up
export HOME=/root XDG_CONFIG_HOME=/root/.config PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
main() { systemctl show --property MainPID --value dsync.service; }
is() { [ "$(systemctl is-active dsync.service)" = "$1" ]; }
# Whether the server has such a line in the journal, since the mark.
log() { journalctl --no-pager --output cat --unit dsync.service --after-cursor "$(cat /cursor)" | grep -q "$1"; }
mark() {
    journalctl --no-pager --output cat --lines 1 --show-cursor | sed -n 's/^-- cursor: //p' >/cursor
    [ -s /cursor ] || fail 'the journal has no entry'
}
mark
# Returns the process of the session that began last.
session() { pgrep --newest --parent "$(main)"; }
# More starts than a unit may have in ten seconds.
again() { systemctl reset-failed dsync.service; systemctl restart dsync.service; }
# A push that is held, once its session writes, until it is let go on. Before that the session may have no
# cage yet, or the process may be the last one's.
hold() {
    dsync -a --retries=0 --timeout=36000 --bwlimit=4000 /src/big "127.0.0.1::backups/$1/" &
    push=$!
    until_it sh -c "ls -A '/srv/backups/laptop/$1' | grep ."
    kill -STOP $push
}
go_on() {
    kill -CONT $push
    wait $push
    cmp /src/big "/srv/backups/laptop/$1/big"
}
push() { dsync -a --retries=0 "$@"; }

step install, with the sample configuration
dpkg -i "$first" >/dev/null
useradd --system --user-group --create-home --home-dir /var/lib/dsync-backup --shell /bin/sh dsync-backup 2>/dev/null ||
    id dsync-backup >/dev/null
install -d -o dsync-backup -g dsync-backup -m 700 /srv/backups
touch /srv/backups/.dsync-share
dpkg-deb --fsys-tarfile "$first" | tar -xO ./usr/share/doc/dsync/examples/serve.toml >/sample.toml
[ "$(systemctl is-enabled dsync.service || true)" = disabled ] || fail 'the unit is enabled by its installation'
systemctl start dsync.service
is inactive || fail 'it runs without a configuration'
install -D -m 644 /sample.toml /etc/dsync/serve.toml
dsync key --file /etc/dsync/server.key >/dev/null 2>&1
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >/usr/local/bin/login
chmod 755 /usr/local/bin/login
dsync enroll --yes -e /usr/local/bin/login --share backups --role append --key laptop --address 127.0.0.1 host >/dev/null
mkdir /src
head -c 40000000 /dev/urandom >/src/big
echo one >/src/small

step start: whoever waits for the unit can push at once
systemctl enable --now dsync.service 2>/dev/null
is active
push /src/small 127.0.0.1::backups/one/
cmp /src/small /srv/backups/laptop/one/small
until_it log 'session peer=.* key=laptop share=backups role=append .*code=0'
dsync serve --status | grep -q backups

step a session is caged as without systemd, and has none of its server\'s capabilities
hold two
process=$(session)
until_it grep -q '^CapEff:.*0000000000000000' "/proc/$process/status"
until_it grep -q '^Seccomp:.*2' "/proc/$process/status"
grep -q "^Uid:.*$(id -u dsync-backup)" "/proc/$process/status"
grep -q '^NoNewPrivs:.*1' "/proc/$process/status"

step a reload keeps sessions, and a configuration that cannot be read keeps the old one
sed -i 's/role = "append"/role = "read"/' /etc/dsync/serve.toml
systemctl reload dsync.service
until_it sh -c '! dsync -a --retries=0 /src/small 127.0.0.1::backups/three/'
echo 'wrong' >>/etc/dsync/serve.toml
systemctl reload dsync.service
until_it log serve.toml:
is active
sed -i -e '/^wrong/d' -e 's/role = "read"/role = "append"/' /etc/dsync/serve.toml
systemctl reload dsync.service
until_it dsync -a --retries=0 /src/small 127.0.0.1::backups/three/
kill -0 "$process" || fail 'a reload ended the session'

step a stop lets the session end
systemctl --no-block stop dsync.service
until_it is deactivating
kill -0 "$process" || fail 'the stop ended the session'
go_on two
until_it is inactive

step the socket starts the server
systemctl start dsync.socket
push /src/small 127.0.0.1::backups/four/
is active
systemctl stop dsync.socket dsync.service
systemctl start dsync.service

step a server that is killed comes back, one whose configuration is wrong does not
kill -KILL "$(main)"
until_it push /src/small 127.0.0.1::backups/five/
echo 'wrong' >>/etc/dsync/serve.toml
! systemctl restart dsync.service 2>/dev/null || fail 'it started with a wrong configuration'
is failed || fail 'it is tried again'
sed -i '/^wrong/d' /etc/dsync/serve.toml
again

step a share elsewhere is read only until the unit is told of it
install -d -o dsync-backup -g dsync-backup /opt/backups
printf '[shares.more]\npath = "/opt/backups"\nuser = "dsync-backup"\n[shares.more.keys.laptop]\nrole = "full"\n' >>/etc/dsync/serve.toml
again
! push /src/small 127.0.0.1::more/ 2>/said || fail 'a share outside of ReadWritePaths was written to'
grep -q 'Read-only file system' /said
mkdir /etc/systemd/system/dsync.service.d
printf '[Service]\nReadWritePaths=/opt/backups\n' >/etc/systemd/system/dsync.service.d/override.conf
systemctl daemon-reload
again
push /src/small 127.0.0.1::more/
cmp /src/small /opt/backups/small

step without Landlock a session has a namespace where the unit lets it, and no cage is claimed elsewhere
override() { printf '[Service]\nReadWritePaths=/opt/backups\n%b' "$1" >/etc/systemd/system/dsync.service.d/override.conf; systemctl daemon-reload; again; }
no_landlock='SystemCallFilter=~landlock_create_ruleset:ENOSYS\n'
mark
override "$no_landlock"
until_it log 'part of the cage is missing here'
! log 'by a mount namespace' || fail 'a namespace that the unit forbids is claimed'
push /src/small 127.0.0.1::backups/six/
mark
override "${no_landlock}CapabilityBoundingSet=CAP_SYS_ADMIN\nRestrictNamespaces=mnt\n"
until_it log 'sessions over the port see only their shares, by a mount namespace'
push /src/small 127.0.0.1::backups/seven/
push /src/small 127.0.0.1::more/seven/
cmp /src/small /opt/backups/seven/small
cmp /src/small /srv/backups/laptop/seven/small
override ''

step an upgrade lets the session end, then the new server starts
hold eight
old=$(main)
dpkg -i "$second" >/dev/null
[ "$(main)" = "$old" ] || fail 'the upgrade ended the session'
go_on eight
until_it push /src/small 127.0.0.1::backups/nine/
[ "$(main)" != "$old" ] || fail 'the old server stands'

step remove
dpkg -r dsync >/dev/null
! is active || fail 'the server stands'
[ -f /etc/dsync/serve.toml ] && [ -f /etc/dsync/server.key ]
step ok
