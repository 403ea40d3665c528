//! The bootstrap's messages on the pipes: whole messages in, whole messages out.

use std::io;

use dsync_wire::bootstrap::{BootstrapError, BootstrapMessage, Parsed};

use crate::pipe::{PipeReader, PipeWriter};

/// Why no message came.
#[derive(Debug)]
pub(crate) enum GreetingError {
    /// The stream ended first.
    Ended,
    /// What came is no message of the bootstrap.
    Wrong(BootstrapError),
    /// Reading or writing failed.
    Pipe(io::Error),
}

/// Waits for the next message. What follows it stays with the reader; after an error what was read and
/// makes no message is still in [`PipeReader::unread`].
pub(crate) async fn receive(reader: &mut PipeReader) -> Result<BootstrapMessage, GreetingError> {
    loop {
        // Nothing may be judged while nothing is there; and the codec bounds what "incomplete" can mean.
        if !reader.unread().is_empty()
            && let Parsed::Complete { message, consumed } =
                BootstrapMessage::parse(reader.unread()).map_err(GreetingError::Wrong)?
        {
            reader.consume(consumed);
            return Ok(message);
        }
        match reader.fill().await {
            Ok(0) => return Err(GreetingError::Ended),
            Ok(_) => {}
            Err(error) => return Err(GreetingError::Pipe(error)),
        }
    }
}

/// Sends messages in one write.
pub(crate) async fn send(
    writer: &mut PipeWriter,
    messages: &[BootstrapMessage],
) -> Result<(), GreetingError> {
    let mut bytes = Vec::new();
    for message in messages {
        message.encode(&mut bytes).map_err(GreetingError::Wrong)?;
    }
    writer.write_all(&bytes).await.map_err(GreetingError::Pipe)
}
