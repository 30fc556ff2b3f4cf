//! A fabric: the API version that the program speaks.

use libfabric_abi::Version;

use super::Users;

#[derive(Debug)]
pub(crate) struct Fabric {
    pub(crate) api: Version,
    pub(crate) domains: Users,
}
