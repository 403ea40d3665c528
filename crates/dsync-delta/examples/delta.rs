//! Signatures and deltas as files, with the operands of `rdiff`.
//!
//! ```text
//! delta [-s] [-b BLOCK_LEN] signature BASIS SIGNATURE
//! delta [-s] delta SIGNATURE NEW DELTA
//! delta [-s] apply BASIS DELTA NEW
//! ```
//!
//! `-` is standard input or output, also a pipe, except as a basis of `apply`, which is read out of
//! order. `-s` prints counts to standard error.
//!
//! `cargo run -p dsync-delta --example delta -- signature old old.sig`

use std::{
    env,
    error::Error,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read, Write},
};

use dsync_delta::{
    BlockLen, Key,
    stream::{self, ApplyOptions, SignatureOptions, SignatureReader},
};

fn main() {
    if let Err(error) = run() {
        let mut text = format!("delta: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        // Nobody is left to tell if this fails.
        let _: io::Result<()> = writeln!(io::stderr(), "{text}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<OsString> = env::args_os().skip(1).collect();
    let prints_counts = take_flag(&mut args, "-s");
    let block_len = take_value(&mut args, "-b")?;

    let operands: Vec<&OsStr> = args.iter().map(OsString::as_os_str).collect();
    let counts = match operands.as_slice() {
        [verb, basis, signature] if *verb == "signature" => write_signature(block_len, basis, signature)?,
        [verb, signature, new, delta] if *verb == "delta" => {
            let index = stream::read_signature(input(signature)?, SignatureReader::MAX_BLOCKS)?;
            format!("{:?}", stream::delta(&index, input(new)?, output(delta)?)?)
        }
        [verb, basis, delta, new] if *verb == "apply" => apply(basis, delta, new)?,
        _ => return Err("usage: delta [-s] [-b BLOCK_LEN] signature|delta|apply FILE...".into()),
    };

    if prints_counts {
        writeln!(io::stderr(), "{counts}")?;
    }
    Ok(())
}

#[allow(clippy::disallowed_methods)] // The operator chose these paths.
fn write_signature(
    block_len: Option<u32>,
    basis: &OsStr,
    signature: &OsStr,
) -> Result<String, Box<dyn Error>> {
    // The length of a pipe is 0 here: then the options are those of an unknown length.
    let len = if basis == "-" { 0 } else { fs::metadata(basis)?.len() };
    let mut options = if len > 0 { SignatureOptions::for_file(len) } else { SignatureOptions::new() };
    if let Some(bytes) = block_len {
        options = options.block_len(BlockLen::new(bytes)?);
    }

    let mut key = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    let options = options.key(Key::from_bytes(key));
    Ok(format!("{:?}", stream::signature(input(basis)?, output(signature)?, &options)?))
}

#[allow(clippy::disallowed_methods)] // The operator chose these paths.
fn apply(basis: &OsStr, delta: &OsStr, new: &OsStr) -> Result<String, Box<dyn Error>> {
    let (basis, delta) = (File::open(basis)?, input(delta)?);
    let options = ApplyOptions::new();
    if new == "-" {
        return Ok(format!("{:?}", stream::apply(basis, delta, io::stdout().lock(), &options)?));
    }

    // Only what was verified gets the name.
    let mut staging = new.to_owned();
    staging.push(".part");
    let counts = stream::apply(basis, delta, File::create(&staging)?, &options);
    if counts.is_err() {
        fs::remove_file(&staging)?;
    }
    let counts = counts?;
    fs::rename(&staging, new)?;
    Ok(format!("{counts:?}"))
}

#[allow(clippy::disallowed_methods)] // The operator chose these paths.
fn input(path: &OsStr) -> io::Result<Box<dyn Read>> {
    if path == "-" { Ok(Box::new(io::stdin())) } else { Ok(Box::new(File::open(path)?)) }
}

#[allow(clippy::disallowed_methods)] // The operator chose these paths.
fn output(path: &OsStr) -> io::Result<Box<dyn Write>> {
    if path == "-" { Ok(Box::new(io::stdout())) } else { Ok(Box::new(File::create(path)?)) }
}

fn take_flag(args: &mut Vec<OsString>, flag: &str) -> bool {
    let found = args.iter().position(|arg| arg == flag);
    found.is_some_and(|at| args.remove(at) == flag)
}

fn take_value(args: &mut Vec<OsString>, flag: &str) -> Result<Option<u32>, Box<dyn Error>> {
    let Some(at) = args.iter().position(|arg| arg == flag) else { return Ok(None) };
    args.remove(at);
    if at == args.len() {
        return Err(format!("{flag} needs a number").into());
    }
    let value = args.remove(at);
    Ok(Some(value.to_string_lossy().parse()?))
}
