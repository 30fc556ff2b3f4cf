//! The messages of two engines over TCP or a Unix socket, and their encryption.
//!
//! # Rooms
//!
//! ```text
//! keyed.rs      an encrypted stream for words of programs
//! shake.rs      the handshake of engines that share a key
//! messages.rs   what two engines say to each other
//! ends.rs       proof of which end of a connection speaks
//! seal.rs       the encryption of frames
//! frames.rs     frames: how they are written, and what may come when
//! error.rs      why a frame could not be sent or received
//! form.rs notices.rs listener.rs   what a frame looks like; messages of programs; what waits for connections
//! streams.rs    TCP and Unix sockets
//! credentials.rs   whose process is at the other end of a Unix socket
//! ```

pub(in crate::engine) mod credentials;
pub(in crate::engine) mod ends;
pub(in crate::engine) mod error;
pub(in crate::engine) mod form;
pub(in crate::engine) mod frames;
pub(in crate::engine) mod keyed;
pub(in crate::engine) mod listener;
pub(in crate::engine) mod messages;
pub(in crate::engine) mod notices;
pub(in crate::engine) mod seal;
pub(in crate::engine) mod shake;
pub(in crate::engine) mod streams;
