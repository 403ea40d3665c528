//! The steps of `examples/delta.rs` by the crate fast_rsync, for `figures.py`. It works on files in
//! memory.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Read, Write},
};

use fast_rsync::{Signature, SignatureOptions, apply, diff};

#[allow(clippy::disallowed_methods)] // The operator chose these paths.
fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let mut input = Vec::new();
    io::stdin().lock().read_to_end(&mut input)?;
    let mut out = Vec::new();

    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["signature", block_len] => {
            let options = SignatureOptions { block_size: block_len.parse()?, crypto_hash_size: 8 };
            out = Signature::calculate(&input, options).into_serialized();
        }
        ["delta", signature] => {
            let signature = Signature::deserialize(fs::read(signature)?)?;
            diff(&signature.index(), &input, &mut out)?;
        }
        ["apply", basis] => apply(&fs::read(basis)?, &input, &mut out)?,
        _ => return Err("usage: fast_rsync signature BLOCK_LEN|delta SIGNATURE|apply BASIS".into()),
    }

    io::stdout().lock().write_all(&out)?;
    Ok(())
}
