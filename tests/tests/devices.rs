//! The content of devices: `--copy-devices` reads it, `--write-devices` replaces it.

use std::{
    fs,
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink},
    path::Path,
};

use dsync_tests::{
    Run, Scratch, Sshd, Via, device::LoopDevice, mount::Mount, needs_dsync, needs_root, run::Outcome,
    scratch::slash, survey, tree::noise,
};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// Makes a node of the character device that has no end.
fn zero(path: &Path) {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::from_raw_mode(0o644), makedev(1, 5)).unwrap();
}

/// Copies `from` to `to` over each carrier.
fn copy(way: &str, options: &[&str], from: &Path, to: &Path) -> Outcome {
    let sshd = Sshd::shared();
    match way {
        "local" => Run::dsync().args(options).arg(slash(from)).arg(to).run(),
        "push" => sshd.run(Via::Ssh).args(options).arg(slash(from)).arg(sshd.operand(to)).run(),
        _ => sshd.run(Via::Quic).args(options).arg(sshd.operand(slash(from))).arg(to).run(),
    }
}

const WAYS: [&str; 3] = ["local", "push", "pull"];

#[test]
fn devices_are_copied_as_files_of_their_content() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(device) = LoopDevice::create(scratch.path(), "image", &noise(1, 1 << 20)) else { return };
    device.node(&scratch.src().join("disk"));
    zero(&scratch.src().join("zero"));
    symlink("disk", scratch.src().join("link")).unwrap();
    fs::write(scratch.src().join("file"), "plain").unwrap();
    let rsync = scratch.at("by-rsync");
    let options = ["-rlpt", "--copy-devices"];
    let _ = Run::of("rsync").args(options).arg(slash(&scratch.src())).arg(&rsync).run().expect_code(0);

    for (number, way) in WAYS.into_iter().enumerate() {
        let to = scratch.at(way);
        let first = copy(way, &["-rlpt", "--copy-devices", "-i"], &scratch.src(), &to).expect_code(0);
        assert!(first.stdout_text().contains("f+++++++++ disk"), "{}", first.account());
        assert_eq!(fs::read(to.join("disk")).unwrap(), device.content());
        assert_eq!(fs::metadata(to.join("zero")).unwrap().len(), 0);
        // rsync 3.2.7 keeps no fraction of a device's time.
        let seconds = |root: &Path| {
            let mut found = survey(root);
            found.values_mut().for_each(|facts| facts.atime = None);
            let times = |name| fs::metadata(root.join(name)).unwrap().mtime();
            (found.keys().cloned().collect::<Vec<_>>(), ["disk", "zero", "file"].map(times))
        };
        assert_eq!(seconds(&to), seconds(&rsync), "{way}");
        assert_eq!(fs::symlink_metadata(to.join("disk")).unwrap().mode(), 0o100_640);

        // A device's time need not show that it was written to: -c does, and the delta works.
        let disk = fs::OpenOptions::new().write(true).open(device.path()).unwrap();
        disk.write_all_at(&noise(10 + number as u64, 3), 700_000).unwrap();
        disk.sync_all().unwrap();
        let second = copy(way, &["-rltpc", "--no-W", "--copy-devices", "--stats"], &scratch.src(), &to);
        let second = second.expect_code(0);
        assert_eq!(fs::read(to.join("disk")).unwrap(), device.content(), "{way}");
        assert!(way == "local" || second.stat("Matched data") > 900_000, "{}", second.account());
        let third = copy(way, &["-rltpci", "--copy-devices"], &scratch.src(), &to).expect_code(0);
        assert_eq!(third.stdout_text(), "", "{way}");
    }
}

#[test]
fn device_that_an_operand_or_a_link_names_is_copied() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(device) = LoopDevice::create(scratch.path(), "image", &noise(2, 64 << 10)) else { return };
    let to = scratch.at("disk.img");
    let _ = Run::dsync().arg("--copy-devices").arg(device.path()).arg(&to).run().expect_code(0);
    assert_eq!(fs::read(&to).unwrap(), device.content());

    symlink(device.path(), scratch.src().join("link")).unwrap();
    let _ = copy("pull", &["-rL", "--copy-devices"], &scratch.src(), &scratch.dst()).expect_code(0);
    assert_eq!(fs::read(scratch.dst().join("link")).unwrap(), device.content());

    // Nor is anything made of it, or of a fifo, with --drop-D.
    let dropped = scratch.at("dropped");
    mknodat(CWD, scratch.src().join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    let run = Run::dsync().args(["--drop-D", "-aL"]).arg(slash(&scratch.src())).arg(&dropped).run();
    assert!(run.expect_code(0).all_text().contains("skipping non-regular file \"fifo\""));
    assert_eq!(fs::read_dir(&dropped).unwrap().count(), 0);

    // Without the option it stays what it is.
    let without = scratch.at("without");
    let _ = Run::dsync().arg("-aL").arg(slash(&scratch.src())).arg(&without).run().expect_code(0);
    assert!(fs::symlink_metadata(without.join("link")).unwrap().file_type().is_block_device());
}

#[test]
fn device_that_cannot_be_opened_is_named_and_nothing_is_deleted() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    // A number that Linux gives to nobody (local and experimental use).
    let nobodys = makedev(240, 77);
    let node = scratch.src().join("nobodys");
    mknodat(CWD, &node, FileType::BlockDevice, Mode::from_raw_mode(0o644), nobodys).unwrap();
    fs::write(scratch.src().join("file"), "plain").unwrap();
    for way in WAYS {
        let to = scratch.at(way);
        fs::create_dir(&to).unwrap();
        fs::write(to.join("extra"), "stays").unwrap();
        let outcome = copy(way, &["-r", "--delete", "--copy-devices"], &scratch.src(), &to).expect_code(23);
        assert!(outcome.stderr_text().contains("nobodys"), "{}", outcome.account());
        assert!(to.join("extra").exists() && to.join("file").exists() && !to.join("nobodys").exists());
    }
    // What is left out is not opened.
    let left_out = ["-r", "--exclude=nobodys", "--copy-devices"];
    let _ = copy("local", &left_out, &scratch.src(), &scratch.dst()).expect_quiet_success();
}

#[test]
fn listing_shows_a_device_as_the_file_that_it_would_be() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(device) = LoopDevice::create(scratch.path(), "image", &noise(3, 64 << 10)) else { return };
    device.node(&scratch.src().join("disk"));
    let list = |program: Run| {
        let outcome = program.args(["-r", "--list-only", "--copy-devices"]).arg(slash(&scratch.src())).run();
        let text = outcome.expect_code(0).stdout_text();
        // Without the time: rsync shows the present one for a device.
        let fields = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
        text.lines().filter(|line| line.ends_with(" disk")).map(fields).collect::<Vec<_>>()
    };
    let ours = list(Run::dsync());
    assert_eq!(ours, list(Run::of("rsync")));
    assert_eq!(ours, [["-rw-r-----", "65,536"]]);
}

/// Copies one file to a path over each carrier.
fn write(way: &str, options: &[&str], from: &Path, to: &Path) -> Outcome {
    let sshd = Sshd::shared();
    match way {
        "local" => Run::dsync().args(options).arg(from).arg(to).run(),
        "push" => sshd.run(Via::Ssh).args(options).arg(from).arg(sshd.operand(to)).run(),
        _ => sshd.run(Via::Quic).args(options).arg(sshd.operand(from)).arg(to).run(),
    }
}

#[test]
fn content_is_written_into_a_device_which_stays_what_it_is() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(device) = LoopDevice::create(scratch.path(), "image", &noise(4, 2 << 20)) else { return };
    let before = fs::metadata(device.path()).unwrap();
    let file = scratch.at("file");
    let expect = |content: &[u8], what: &str| {
        let now = device.content();
        assert!(now[..content.len()] == *content && now.len() == 2 << 20, "{what}");
        let stands = fs::symlink_metadata(device.path()).unwrap();
        let facts = |found: &fs::Metadata| (found.mode(), found.uid(), found.rdev());
        assert_eq!(facts(&stands), facts(&before), "{what}");
    };

    for (number, way) in WAYS.into_iter().enumerate() {
        let seed = 10 * number as u64;
        // Whole, of its length; then changed in the middle; then shifted, shorter, and with holes.
        let mut content = noise(seed + 20, 2 << 20);
        fs::write(&file, &content).unwrap();
        let first = write(way, &["-ai", "--write-devices"], &file, device.path()).expect_code(0);
        assert!(first.stdout_text().contains("fc........ file"), "{}", first.account());
        expect(&content, way);

        content[700_000..700_010].fill(7);
        fs::write(&file, &content).unwrap();
        let delta = ["-a", "--no-W", "--stats", "--write-devices"];
        // What arrives for a device that has it already is not written.
        let second = write(way, &delta, &file, device.path()).expect_code(0);
        assert!(second.stat("Matched data") > 1_900_000, "{}", second.account());
        expect(&content, way);

        content.splice(..0, noise(seed + 21, 777));
        content.truncate(2 << 20);
        fs::write(&file, &content).unwrap();
        let _ = write(way, &delta, &file, device.path()).expect_code(0);
        expect(&content, "shifted");

        fs::write(&file, b"short").unwrap();
        let _ = write(way, &["-a", "--write-devices"], &file, device.path()).expect_code(0);
        content[..5].copy_from_slice(b"short");
        expect(&content, "the rest stays");

        for options in
            [&["-a", "--write-devices"][..], &["-aS", "--write-devices"], &["-aW", "--write-devices"]]
        {
            fs::write(device.path(), noise(seed + 22, 2 << 20)).unwrap();
            let sparse = fs::File::create(&file).unwrap();
            sparse.set_len(2 << 20).unwrap();
            sparse.write_all_at(b"data", 1_500_000).unwrap();
            let _ = write(way, options, &file, device.path()).expect_code(0);
            expect(&fs::read(&file).unwrap(), "holes are zeros");
        }
    }
}

#[test]
fn device_that_is_too_short_or_in_use_is_left_alone() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(device) = LoopDevice::create(scratch.path(), "image", &noise(5, 4 << 20)) else { return };
    let file = scratch.at("file");
    fs::write(&file, noise(6, (4 << 20) + 1)).unwrap();
    let before = device.content();
    for way in WAYS {
        for options in [&["-a", "--write-devices"][..], &["-an", "--write-devices"]] {
            let outcome = write(way, options, &file, device.path()).expect_code(23);
            let text = outcome.stderr_text();
            assert!(text.contains("4194304 bytes") && text.contains("4194305"), "{}", outcome.account());
            assert_eq!(device.content(), before);
        }
    }

    // A file that an option leaves alone need not fit.
    let _ = write("push", &["-a", "--write-devices", "--max-size=4M"], &file, device.path())
        .expect_quiet_success();
    assert_eq!(device.content(), before);

    let format = Run::of("mkfs.ext4").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").arg("-q");
    let _ = format.arg(device.path()).run().expect_code(0);
    let at = scratch.at("mounted");
    fs::create_dir(&at).unwrap();
    let Some(mounted) = Mount::with(&[device.path().as_os_str()], &at) else { return };
    fs::write(&file, noise(6, 1 << 20)).unwrap();
    for way in WAYS {
        let outcome = write(way, &["-a", "--write-devices"], &file, device.path()).expect_code(23);
        assert!(outcome.stderr_text().contains("busy"), "{}", outcome.account());
    }
    drop(mounted);
    let check = Run::of("e2fsck").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").arg("-fn").arg(device.path());
    let _ = check.run().expect_code(0);
}

#[test]
fn devices_of_a_tree_are_written_only_by_files_of_their_names_and_only_with_the_option() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(device) = LoopDevice::create(scratch.path(), "image", &noise(7, 1 << 20)) else { return };
    fs::write(scratch.src().join("disk"), noise(8, 1 << 20)).unwrap();
    fs::write(scratch.src().join("plain"), "plain").unwrap();
    // A link is no content: it takes the name, as without the option.
    symlink("plain", scratch.src().join("link")).unwrap();
    // Nor is a device made: its source could write to it the next time.
    zero(&scratch.src().join("planted"));
    // One of several names: the device gets its content, and the others are files of their own.
    fs::hard_link(scratch.src().join("plain"), scratch.src().join("another")).unwrap();
    for way in WAYS {
        let to = scratch.at(way);
        fs::create_dir(&to).unwrap();
        device.node(&to.join("disk"));
        device.node(&to.join("other"));
        zero(&to.join("another"));
        zero(&to.join("link"));
        let is_device = |name: &str| {
            let kind = fs::symlink_metadata(to.join(name)).unwrap().file_type();
            kind.is_block_device() || kind.is_char_device()
        };
        let _ = copy(way, &["-aH", "--write-devices"], &scratch.src(), &to).expect_code(0);
        assert_eq!(device.content(), fs::read(scratch.src().join("disk")).unwrap(), "{way}");
        assert!(!to.join("planted").exists(), "{way}");
        assert!(is_device("disk") && is_device("other") && is_device("another") && !is_device("link"));
        assert_eq!(fs::read(to.join("plain")).unwrap(), b"plain");

        // Without it a device gives way to a file, and its content stays.
        let before = device.content();
        fs::write(scratch.src().join("disk"), way).unwrap();
        let _ = copy(way, &["-aH", "--inplace"], &scratch.src(), &to).expect_code(0);
        assert!(!is_device("disk") && !is_device("another") && device.content() == before, "{way}");
        fs::write(scratch.src().join("disk"), noise(8, 1 << 20)).unwrap();
    }
}

#[test]
fn null_takes_all_that_is_written() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let file = scratch.at("file");
    fs::write(&file, noise(9, 3 << 20)).unwrap();
    let null = scratch.at("null");
    mknodat(CWD, &null, FileType::CharacterDevice, Mode::from_raw_mode(0o600), makedev(1, 3)).unwrap();
    for way in WAYS {
        let _ = write(way, &["-a", "--write-devices"], &file, &null).expect_code(0);
        let found = fs::symlink_metadata(&null).unwrap();
        assert!(found.file_type().is_char_device() && found.mode() & 0o777 == 0o600, "{way}");
    }
}
