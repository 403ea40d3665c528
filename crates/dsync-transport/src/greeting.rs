//! The bootstrap's messages on the pipes: whole messages in, whole messages out.

use std::io;

use dsync_wire::bootstrap::{BootstrapError, BootstrapMessage, Parsed};

use crate::pipe::{PipeReader, PipeWriter};

/// The reason why no message arrived.
#[derive(Debug)]
pub(crate) enum GreetingError {
    /// The stream ended first.
    Ended,
    /// The bytes are not a message of the bootstrap.
    Wrong(BootstrapError),
    /// Reading or writing failed.
    Pipe(io::Error),
}

/// Waits for the next message. Bytes behind it stay with the reader. After an error, bytes that do
/// not form a message are still in [`PipeReader::unread`].
pub(crate) async fn receive(reader: &mut PipeReader) -> Result<BootstrapMessage, GreetingError> {
    loop {
        // Nothing can be judged without any bytes. With some, the codec bounds what "incomplete"
        // can mean.
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
