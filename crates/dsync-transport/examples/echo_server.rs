//! The smallest remote side: echoes every lane until the link ends.
//!
//! `tests/remote.rs` starts it through ssh where a run would start `dsync --server`.

use std::{env, io, os::fd::AsFd, process::ExitCode, thread};

use bytes::Bytes;
use dsync_transport::{AcceptError, Entrance, accept};
use dsync_wire::link::{Lane, LinkError};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo_server: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn serve() -> Result<(), AcceptError> {
    let system = |source| AcceptError::System { source };
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(system)?;
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(system)?;
    let connection = env::var("SSH_CONNECTION").ok();
    let entrance = Entrance::new(input, output).ssh_connection(connection.as_deref());
    let link = accept(entrance, &std::sync::Arc::default())?.link;
    while let Ok(lane) = link.accept_lane() {
        thread::spawn(move || echo(lane));
    }
    Ok(())
}

fn echo(mut lane: Lane) -> Result<(), LinkError> {
    let mut buf = vec![0; 64 << 10];
    loop {
        match lane.rx.read(&mut buf)? {
            0 => return lane.tx.finish(),
            count => lane.tx.write(Bytes::copy_from_slice(&buf[..count]))?,
        }
    }
}
