//! The competitors: a table of shell commands.
//!
//! A command sees `$SRC` and `$DST`, the directories; `$SSH`, `$CONFIG` and `$KEY`, ways to the far
//! host, whose ssh name is `$HOST` and whose address is `$ADDRESS`; `$DSYNC`, the program under
//! test; `$SPARSE`, `-S` if the input has holes; and `$WORK`, a place for files of its own.

use std::{env, path::Path};

use crate::input::Input;

/// One way to copy.
pub(crate) struct Tool {
    /// Name in the table and on the command line.
    pub(crate) name: &'static str,
    /// Programs that it needs, each with its source: a Debian package, or `cargo:NAME`.
    needs: &'static [(&'static str, &'static str)],
    /// The inputs that it can copy.
    can: Can,
    /// Command for the near host, whose time counts.
    pub(crate) near: &'static str,
    /// Command for the far host meanwhile, if ssh does not start it.
    pub(crate) server: Option<Server>,
}

/// The far end of a tool that does not use ssh.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    /// The command.
    pub(crate) script: &'static str,
    /// Port that shows that it is ready.
    pub(crate) port: u16,
    /// Whether it ends by itself after receiving everything; the run is over only then.
    pub(crate) ends: bool,
}

/// The inputs that a tool can copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Can {
    /// Anything, using existing files.
    Update,
    /// Anything, but its server keeps what it knows of a tree to itself: from nothing, or after a run
    /// through the same server.
    OwnState,
    /// Anything, from nothing.
    Trees,
    /// None: it reads what is there, and shows how fast that can be.
    Reads,
    /// Plain files with plain names.
    Files,
    /// One file.
    OneFile,
    /// One file, if a round trip takes no time: it sends one packet for each.
    OneFileNear,
}

/// The name in a destination of what no tool copied: sparsync's own directory.
pub(crate) const KNOWN_EXTRA: &str = ".sparsync";

const RSYNC: &[(&str, &str)] = &[("rsync", "rsync")];
const NOTHING: &[(&str, &str)] = &[];

const fn tool(
    name: &'static str,
    needs: &'static [(&'static str, &'static str)],
    can: Can,
    near: &'static str,
) -> Tool {
    Tool { name, needs, can, near, server: None }
}

/// dsync with options.
macro_rules! dsync {
    ($name:literal, $options:literal) => {
        tool(
            $name,
            NOTHING,
            Can::Update,
            concat!(
                r#""$DSYNC" -a $SPARSE "#,
                $options,
                r#" --dsync-path "$DSYNC" -e "$SSH" "$SRC/" "$HOST:$DST/""#
            ),
        )
    };
}

/// All tools, in the order of the race.
pub(crate) const ALL: &[Tool] = &[
    dsync!("dsync-auto", ""),
    dsync!("dsync-quic", "--transport=quic"),
    dsync!("dsync-tls", "--transport=tls"),
    dsync!("dsync-ssh", "--transport=ssh"),
    dsync!("dsync-not-durable", "--durability=none"),
    // Fixed levels of compression, to judge dsync's own choice.
    dsync!("dsync-raw", "--no-compress"),
    dsync!("dsync-lz4", "--compress-choice=lz4"),
    dsync!("dsync-zstd-1", "--compress-choice=zstd --compress-level=1"),
    dsync!("dsync-zstd-3", "--compress-choice=zstd --compress-level=3"),
    dsync!("dsync-zstd-9", "--compress-choice=zstd --compress-level=9"),
    Tool {
        server: Some(Server {
            script: r#"mkdir -p "$WORK/home/dsync" && cd "$WORK" && rm -f home/dsync/key server.key
                own=$("$DSYNC" key --file home/dsync/key) && its=$("$DSYNC" key --file server.key) || exit
                printf '%s:8730 %s\n' "$ADDRESS" "$its" >home/dsync/known-hosts
                printf '%s\n' '[server]' "listen = ['$ADDRESS:8730']" "identity = '$WORK/server.key'" '[keys.race]' \
                    "public = '$own'" '[shares.dst]' "path = '$DST'" "user = 'root'" '[shares.dst.keys.race]' \
                    "role = 'full'" >serve.toml
                chmod 600 serve.toml && exec "$DSYNC" serve --config serve.toml"#,
            port: 8730,
            ends: false,
        }),
        ..tool(
            "dsync-serve",
            NOTHING,
            Can::Update,
            r#"XDG_CONFIG_HOME="$WORK/home" "$DSYNC" -a $SPARSE "$SRC/" "dsync://$ADDRESS:8730/dst/""#,
        )
    },
    // Without another host. Also the limit of a cold disk: as many reads at once as it serves.
    tool("dsync-local", NOTHING, Can::Update, r#""$DSYNC" -a $SPARSE "$SRC/" "$DST/""#),
    tool("rsync-local", RSYNC, Can::Update, r#"rsync -a $SPARSE "$SRC/" "$DST/""#),
    tool("cp-local", NOTHING, Can::Trees, r#"cp -a "$SRC/." "$DST/""#),
    tool(
        "cat-32",
        NOTHING,
        Can::Reads,
        r#"find "$SRC" -type f -print0 | xargs -0 -P 32 -n 64 cat >/dev/null"#,
    ),
    tool(
        "cat-both",
        NOTHING,
        Can::Reads,
        r#"find "$SRC" -type f -exec cat {} + >/dev/null & find "$DST" -type f -exec cat {} + >/dev/null; wait"#,
    ),
    tool(
        "look",
        NOTHING,
        Can::Reads,
        r#"find "$SRC" -printf '%s %T@ %m %U %G' >/dev/null & find "$DST" -printf '%s %T@ %m %U %G' >/dev/null; wait"#,
    ),
    tool(
        "dsync-pull",
        NOTHING,
        Can::Update,
        r#""$DSYNC" -a $SPARSE --dsync-path "$DSYNC" -e "$SSH" "$HOST:$SRC/" "$DST/""#,
    ),
    tool(
        "rsync-pull",
        RSYNC,
        Can::Update,
        r#"rsync -a $SPARSE -e "$SSH -c aes128-gcm@openssh.com" "$HOST:$SRC/" "$DST/""#,
    ),
    tool("rsync-ssh", RSYNC, Can::Update, r#"rsync -a $SPARSE -e "$SSH" "$SRC/" "$HOST:$DST/""#),
    tool(
        "rsync-ssh-aes128gcm",
        RSYNC,
        Can::Update,
        r#"rsync -a $SPARSE -e "$SSH -c aes128-gcm@openssh.com" "$SRC/" "$HOST:$DST/""#,
    ),
    tool(
        "rsync-ssh-zstd",
        RSYNC,
        Can::Update,
        r#"rsync -az --compress-choice=zstd $SPARSE -e "$SSH" "$SRC/" "$HOST:$DST/""#,
    ),
    tool(
        "rsync-ssh-lz4",
        RSYNC,
        Can::Update,
        r#"rsync -az --compress-choice=lz4 $SPARSE -e "$SSH" "$SRC/" "$HOST:$DST/""#,
    ),
    Tool {
        server: Some(Server {
            script: r#"printf '[dst]\npath = %s\nread only = no\nuse chroot = yes\nuid = root\ngid = root\n' "$DST" >"$WORK/rsyncd.conf"
                exec rsync --daemon --no-detach --address "$ADDRESS" --port 8730 --config "$WORK/rsyncd.conf""#,
            port: 8730,
            ends: false,
        }),
        ..tool("rsync-daemon", RSYNC, Can::Update, r#"rsync -a $SPARSE "$SRC/" "rsync://$ADDRESS:8730/dst/""#)
    },
    Tool {
        server: Some(Server {
            script: r#"sparsync gen-cert --cert "$WORK/sparsync.cert" --key "$WORK/sparsync.key" --name localhost >/dev/null &&
                exec sparsync serve --bind "$ADDRESS:8970" --destination "$DST" --cert "$WORK/sparsync.cert" --key "$WORK/sparsync.key" >/dev/null"#,
            port: 8970,
            ends: false,
        }),
        ..tool(
            "sparsync",
            &[("sparsync", "cargo:sparsync")],
            Can::OwnState,
            // The numbers are those of its own benchmark.
            r#"sparsync push --source "$SRC" --server "$ADDRESS:8970" --server-name localhost --ca "$WORK/sparsync.cert" \
                --parallel-files 16 --scan-workers 8 --hash-workers 16 --compression-level 0 >/dev/null"#,
        )
    },
    tool("scp", NOTHING, Can::Files, r#"scp -q -r -p -F "$CONFIG" "$SRC"/* "$HOST:$DST/""#),
    tool("scp-C", NOTHING, Can::Files, r#"scp -q -C -r -p -F "$CONFIG" "$SRC"/* "$HOST:$DST/""#),
    tool(
        "sftp",
        NOTHING,
        Can::Files,
        r#"printf 'lcd %s\ncd %s\nput -rp *\n' "$SRC" "$DST" | sftp -q -F "$CONFIG" -b - "$HOST" >/dev/null"#,
    ),
    Tool {
        server: Some(Server {
            script: r#"chown ftp "$DST"; mkdir -p "$WORK/empty"
                printf '%s\n' listen=YES listen_port=2121 listen_address="$ADDRESS" background=NO anonymous_enable=YES \
                    no_anon_password=YES write_enable=YES anon_upload_enable=YES anon_mkdir_write_enable=YES \
                    anon_other_write_enable=YES anon_umask=022 anon_root="$WORK" allow_writeable_chroot=YES \
                    seccomp_sandbox=NO secure_chroot_dir="$WORK/empty" >"$WORK/vsftpd.conf"
                exec vsftpd "$WORK/vsftpd.conf""#,
            port: 2121,
            ends: false,
        }),
        ..tool(
            "ftp",
            &[("lftp", "lftp"), ("vsftpd", "vsftpd")],
            Can::Files,
            r#"lftp -c "open -u anonymous, $ADDRESS:2121; mirror -R -p $SRC /dst""#,
        )
    },
    Tool {
        server: Some(Server {
            script: r#"# It asks for an address family that is in use, and loopback addresses do not count.
                ip addr add 10.77.9.9/32 dev lo 2>/dev/null
                exec in.tftpd --ipv4 --foreground --address "$ADDRESS:6969" --create --permissive --user root --secure "$DST""#,
            port: 6969,
            ends: false,
        }),
        ..tool(
            "tftp",
            &[("tftp", "tftp-hpa"), ("in.tftpd", "tftpd-hpa")],
            Can::OneFileNear,
            r#"cd "$SRC" && tftp -m binary "$ADDRESS" 6969 -c put large"#,
        )
    },
    Tool {
        server: Some(Server {
            script: r#"nc -l -N "$ADDRESS" 7000 | tar -xSf - -C "$DST""#,
            port: 7000,
            ends: true,
        }),
        ..tool(
            "tar-nc",
            &[("nc", "netcat-openbsd")],
            Can::Trees,
            r#"tar -cf - $SPARSE -C "$SRC" . | nc -N "$ADDRESS" 7000"#,
        )
    },
    Tool {
        server: Some(Server {
            script: r#"cd "$SRC" && exec python3 -m http.server 8000 --bind "$ADDRESS""#,
            port: 8000,
            ends: false,
        }),
        ..tool(
            "http-wget",
            &[("wget", "wget"), ("python3", "python3")],
            Can::Files,
            r#"cd "$DST" && wget -q -r -nH -np --reject 'index.html*' "http://$ADDRESS:8000/""#,
        )
    },
    tool(
        "tar-ssh",
        NOTHING,
        Can::Trees,
        r#"tar -cf - $SPARSE -C "$SRC" . | $SSH $HOST "tar -xf - -C '$DST'""#,
    ),
    tool(
        "tar-lz4-ssh",
        &[("lz4", "lz4")],
        Can::Trees,
        r#"tar -cf - $SPARSE -C "$SRC" . | lz4 -qc | $SSH $HOST "lz4 -qdc | tar -xf - -C '$DST'""#,
    ),
    tool(
        "tar-pigz-ssh",
        &[("pigz", "pigz")],
        Can::Trees,
        r#"tar -cf - $SPARSE -C "$SRC" . | pigz -c | $SSH $HOST "pigz -dc | tar -xf - -C '$DST'""#,
    ),
    tool(
        "tar-zstd-ssh",
        &[("zstd", "zstd")],
        Can::Trees,
        r#"tar -cf - $SPARSE -C "$SRC" . | zstd -qc -T0 | $SSH $HOST "zstd -qdc | tar -xf - -C '$DST'""#,
    ),
    tool(
        "gzip-ssh",
        &[("gzip", "gzip")],
        Can::OneFile,
        r#"gzip -c "$SRC/large" | $SSH $HOST "gzip -dc >'$DST/large'""#,
    ),
    tool(
        "rclone-sftp",
        &[("rclone", "rclone")],
        Can::Files,
        r#"rclone --config /dev/null --sftp-host "$ADDRESS" --sftp-user root --sftp-key-file "$KEY" --sftp-set-modtime=true copy "$SRC" ":sftp:$DST""#,
    ),
    tool(
        "qcp",
        &[("qcp", "cargo:qcp")],
        Can::OneFile,
        // It takes a program for ssh, not a command line, and reads no aliases from it.
        r#"printf '#!/bin/sh\nexec %s "$@"\n' "$SSH" >"$WORK/ssh" && chmod +x "$WORK/ssh" &&
            qcp -q --ssh "$WORK/ssh" "$SRC/large" "$ADDRESS:$DST/large""#,
    ),
];

impl Tool {
    /// Returns whether it can copy the input; `near` means that a round trip takes no time.
    pub(crate) fn fits(&self, input: Input, near: bool) -> bool {
        match self.can {
            Can::Update | Can::Reads => true,
            Can::OwnState => !input.needs_basis() || input.is_mixed(),
            Can::Trees => !input.needs_basis(),
            Can::Files => !input.needs_basis() && !input.is_mixed() && !input.is_small(),
            Can::OneFile => matches!(input, Input::One | Input::Log),
            Can::OneFileNear => near && matches!(input, Input::One | Input::Log),
        }
    }

    /// Returns whether it makes a copy.
    pub(crate) fn copies(&self) -> bool {
        self.can != Can::Reads
    }

    /// Returns the programs that are missing here, with their sources.
    pub(crate) fn missing(&self) -> Vec<String> {
        let missing = self.needs.iter().filter(|(program, _)| !is_there(program));
        missing.map(|(program, package)| format!("{program} ({package})")).collect()
    }

    /// Returns the missing packages.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &'static str> {
        self.needs.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package)
    }
}

fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).any(|dir| dir.join(program).is_file());
    on_path || ["/usr/sbin", "/sbin"].iter().any(|dir| Path::new(dir).join(program).is_file())
}
