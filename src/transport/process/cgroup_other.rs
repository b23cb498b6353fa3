//! Placeholder for systems without control groups.

use std::fs::File;
use std::io;

use super::Pressure;
use crate::transport::TreeLimits;

/// Groups that cannot be claimed.
#[derive(Clone, Debug)]
pub(crate) struct ServerCgroups;

impl ServerCgroups {
    pub(crate) fn claim() -> Result<Self, String> {
        Err("this system has no control groups".to_owned())
    }

    pub(crate) fn create(&self, _number: u64, _limits: TreeLimits) -> io::Result<ChildCgroup> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A group that never exists.
#[derive(Clone, Debug)]
pub(crate) struct ChildCgroup;

impl ChildCgroup {
    pub(crate) fn entrance(&self) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn kill(&self) {}

    pub(crate) fn ran_out_of_memory(&self) -> bool {
        false
    }
}

/// Reports nothing, because this system does not provide it.
pub(crate) fn pressure_of(_pid: u32) -> Option<Pressure> {
    None
}
