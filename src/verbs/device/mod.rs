//! A device: the list of devices, an open device, its commands, and what it says of itself.

pub(in crate::verbs) mod adopt;
pub(in crate::verbs) mod caps;
pub(in crate::verbs) mod command;
pub(in crate::verbs) mod gids;
pub(in crate::verbs) mod list;
pub(in crate::verbs) mod open;
pub(in crate::verbs) mod own_port;
pub(in crate::verbs) mod port;
pub(in crate::verbs) mod traffic_class;
