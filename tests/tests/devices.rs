//! The content of devices: `--copy-devices` makes files of it, and what they cannot be.

use std::{
    fs,
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink},
    path::Path,
};

use dsync_tests::{
    Run, Scratch, Sshd, Via, device::LoopDevice, needs_dsync, needs_root, run::Outcome, scratch::slash,
    survey, tree::noise,
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

        // No time shows that a device was written to: -c does, and the delta works.
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
        text.lines().filter(|line| line.ends_with(" disk")).map(str::to_owned).collect::<Vec<_>>()
    };
    let ours = list(Run::dsync());
    assert_eq!(ours, list(Run::of("rsync")));
    assert!(matches!(ours.as_slice(), [line] if line.starts_with("-rw-r-----") && line.contains("65,536")));
}
