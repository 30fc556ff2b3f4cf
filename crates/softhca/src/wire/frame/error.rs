//! Why a frame is not read.

/// The reason why a frame is of no use to an HCA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is shorter than its headers say.
    #[error("cut short")]
    Short,
    /// The frame is neither RoCE nor ARP for IPv4.
    #[error("another protocol")]
    Protocol,
    /// The IPv4 header has options, or the packet is a fragment, or an IPv6 header or GRH has another version.
    #[error("an IP header with options or of another version, or a fragment")]
    Shape,
    /// An end has an address or GID that no software HCA has.
    #[error("an address or a GID that no software HCA has")]
    Gid,
    /// The checksum of the IPv4 header is wrong.
    #[error("wrong IPv4 header checksum")]
    Checksum,
}
