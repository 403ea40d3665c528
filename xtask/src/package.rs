//! `cargo xtask package`: every crate under `crates/` can be published, and its package builds for
//! who has nothing but the package.
//!
//! The packages are made, unpacked into a workspace of their own under `target/`, and checked there
//! with all their targets, so that no test and no example reads a file of the checkout.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use cargo_metadata::{MetadataCommand, Package};

use crate::{
    error::TaskError,
    links,
    step::{cargo, command, root, run as run_command},
};

/// Checks the metadata, makes the packages, and checks what is in them.
///
/// # Errors
/// [`TaskError::Packages`] with every fault, or that of a command.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    if let Some(unknown) = args.first() {
        return Err(TaskError::Argument(unknown.clone()));
    }
    let packages = published()?;
    settle(packages.iter().flat_map(metadata_faults).collect())?;

    make(&packages)?;
    let place = root().join("target/packages");
    unpack(&packages, &place)?;
    settle(packages.iter().flat_map(|package| content_faults(&place.join(stem(package)))).collect())?;

    // The crates of the registry are there: whatever builds the checkout has fetched them.
    let manifest = place.join("Cargo.toml");
    run_command(
        cargo(&["check", "--offline", "--workspace", "--all-targets", "--manifest-path"])
            .arg(manifest)
            .env("CARGO_TARGET_DIR", root().join("target")),
    )
}

/// Returns the packages of the crates that are shipped.
fn published() -> Result<Vec<Package>, TaskError> {
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    let crates = root().join("crates");
    Ok(metadata.packages.into_iter().filter(|package| package.manifest_path.starts_with(&crates)).collect())
}

fn settle(faults: Vec<String>) -> Result<(), TaskError> {
    if faults.is_empty() { Ok(()) } else { Err(TaskError::Packages { faults }) }
}

/// Returns the name of a package's file, without its ending.
fn stem(package: &Package) -> String {
    format!("{}-{}", package.name, package.version)
}

/// Returns what a package's manifest lacks for the registry.
fn metadata_faults(package: &Package) -> Vec<String> {
    let wrong = [
        (package.publish.is_some(), "is not to be published, but it is under crates/"),
        (package.description.as_ref().is_none_or(|text| text.len() < 30), "has no description of its own"),
        (package.license.as_deref() != Some("MIT OR Apache-2.0"), "has another licence"),
        (package.readme.is_none(), "has no readme"),
        (package.documentation.is_none(), "has no address of its documentation"),
        (package.rust_version.is_none(), "has no rust-version"),
        (!(1..=5).contains(&package.keywords.len()), "has not one to five keywords"),
        (package.keywords.iter().any(|word| word.len() > 20), "has a keyword of more than 20 bytes"),
        (!(1..=5).contains(&package.categories.len()), "has not one to five categories"),
        (
            package.categories.iter().any(|slug| !CATEGORIES.contains(&slug.as_str())),
            "has an unknown category",
        ),
    ];
    let general = wrong.into_iter().filter(|(is_wrong, _)| *is_wrong).map(|(_, fault)| fault.to_owned());

    let by_path = package.dependencies.iter().filter(|needed| needed.path.is_some());
    let unversioned = by_path.filter(|needed| needed.req.to_string() == "*");
    let unversioned = unversioned.map(|needed| format!("depends on {} without a version", needed.name));
    general.chain(unversioned).map(|fault| format!("{} {fault}", package.name)).collect()
}

/// The registry's categories that crates here use; it refuses those that it does not know.
const CATEGORIES: &[&str] = &[
    "algorithms",
    "command-line-utilities",
    "compression",
    "encoding",
    "external-ffi-bindings",
    "filesystem",
    "network-programming",
];

/// Makes the packages, of the files as they are here.
fn make(packages: &[Package]) -> Result<(), TaskError> {
    let mut command = cargo(&["package", "--locked", "--offline", "--no-verify", "--allow-dirty", "--quiet"]);
    for package in packages {
        command.args(["-p", package.name.as_str()]);
    }
    run_command(&mut command)
}

/// Unpacks the packages as the members of a workspace, with the checkout's lock file.
fn unpack(packages: &[Package], place: &Path) -> Result<(), TaskError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| TaskError::Read { path, source }
    };
    if place.exists() {
        fs::remove_dir_all(place).map_err(failed(place))?;
    }
    fs::create_dir_all(place).map_err(failed(place))?;

    let (mut members, mut patches) = (String::new(), String::new());
    for package in packages {
        let (name, stem) = (&package.name, stem(package));
        let file = root().join("target/package").join(format!("{stem}.crate"));
        // With new times: those in a package are always the same, and cargo would take what it checked
        // of an earlier one for up to date.
        run_command(command("tar", &["-xmzf"]).arg(file).arg("-C").arg(place))?;
        members += &format!("{stem:?}, ");
        patches += &format!("{name} = {{ path = {stem:?} }}\n");
    }
    let checkout = root().join("Cargo.toml");
    let profile = development_profile(&fs::read_to_string(&checkout).map_err(failed(&checkout))?);
    let manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{members}]\n\n[patch.crates-io]\n{patches}\n{profile}"
    );
    let write = |name: &str, text: &[u8]| {
        let path = place.join(name);
        fs::write(&path, text).map_err(failed(&path))
    };
    write("Cargo.toml", manifest.as_bytes())?;
    let lock = root().join("Cargo.lock");
    write("Cargo.lock", &fs::read(&lock).map_err(failed(&lock))?)
}

/// Returns the profile of development builds in a manifest. With the same one the dependencies that were
/// checked for the checkout are not checked again.
fn development_profile(manifest: &str) -> String {
    let from = manifest.find("[profile.dev]").unwrap_or(manifest.len());
    let rest = &manifest[from..];
    rest[..rest.find("[profile.release]").unwrap_or(rest.len())].to_owned()
}

/// Returns the faults of an unpacked package: missing texts, and files that refer outside it.
fn content_faults(package: &Path) -> Vec<String> {
    let name = package.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let texts = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];
    let mut faults: Vec<String> = texts
        .into_iter()
        .filter(|text| !package.join(text).is_file())
        .map(|text| format!("{name} has no {text}"))
        .collect();

    let readme = package.join("README.md");
    faults
        .extend(fs::read_to_string(&readme).map_or_else(|_| Vec::new(), |text| links::dead(&readme, &text)));
    for file in rust_files(package) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let shown = file.strip_prefix(package).unwrap_or(&file).display().to_string();
        let outside = foreign(&text, &file, package).into_iter();
        faults.extend(outside.map(|path| format!("{name}: {shown} refers to {path}")));
    }
    faults
}

/// Returns the files of Rust in a directory and below.
pub(crate) fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let here = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    here.chain(dirs.iter().flat_map(|dir| rust_files(dir))).collect()
}

/// Returns the paths in a source file that lead out of its package: those that a macro includes,
/// from the file on, and those behind the manifest's directory, from the package on.
fn foreign(text: &str, file: &Path, package: &Path) -> Vec<String> {
    let here = file.parent().unwrap_or(package);
    let mut found = Vec::new();
    for (mark, start) in
        [("include_str!(", here), ("include_bytes!(", here), ("env!(\"CARGO_MANIFEST_DIR\")", package)]
    {
        for rest in text.split(mark).skip(1) {
            // The next string of the same statement is the path.
            let statement = rest.split(';').next().unwrap_or_default();
            let Some(path) = statement.split('"').nth(1) else { continue };
            if leads_out(&start.join(path.trim_start_matches('/')), package) {
                found.push(path.to_owned());
            }
        }
    }
    found
}

/// Returns whether a path is outside a directory, by its words.
fn leads_out(path: &Path, dir: &Path) -> bool {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    !plain.starts_with(dir)
}

#[test]
fn paths_out_of_a_package_are_found() {
    let package = Path::new("/p/one-0.1.0");
    let found = |text: &str| foreign(text, &package.join("src/deep/file.rs"), package);
    let manifest = |path| format!("Path::new(env!(\"CARGO_MANIFEST_DIR\")).join({path:?});");

    assert_eq!(found("include_str!(\"../../../docs/page.md\")"), ["../../../docs/page.md"]);
    assert_eq!(found("include_str!(\"../../docs/page.md\")"), [""; 0]);
    assert_eq!(found(&manifest("../../docs")), ["../../docs"]);
    assert_eq!(found(&manifest("docs")), [""; 0]);
    assert_eq!(found("concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../x\");"), ["/../x"]);
    // The string of another statement is no path behind the directory.
    assert_eq!(found("let at = env!(\"CARGO_MANIFEST_DIR\"); let up = \"../..\";"), [""; 0]);
}

#[test]
fn the_profile_of_development_is_taken_whole_and_alone() {
    let manifest = "[a]\n[profile.dev]\nx = 1\n[profile.dev.package]\ny = 2\n[profile.release]\nz = 3\n";
    assert_eq!(development_profile(manifest), "[profile.dev]\nx = 1\n[profile.dev.package]\ny = 2\n");
    let own = fs::read_to_string(root().join("Cargo.toml")).unwrap_or_default();
    assert!(development_profile(&own).contains("[profile.dev.package]"));
}

#[test]
fn every_crate_has_the_metadata_of_the_registry() -> Result<(), TaskError> {
    let packages = published()?;
    assert!(packages.len() >= 7);
    assert_eq!(packages.iter().flat_map(metadata_faults).collect::<Vec<_>>(), [""; 0]);
    Ok(())
}
