//! A stub with the signatures of the module that steers streams to kernel threads of their own. It steers nothing and says so.
#![allow(missing_docs, reason = "a stub")]

use std::io;
use std::net::IpAddr;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    pub protocol: Option<Protocol>,
    pub local: Option<IpAddr>,
    pub local_port: Option<u16>,
    pub remote: Option<IpAddr>,
    pub remote_port: Option<u16>,
    pub dscp: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policing {
    pub packets: u32,
    pub period: laxity_core::units::Duration,
    pub is_dropped: bool,
}

#[derive(Debug)]
pub struct Steering;

impl Steering {
    pub const MOST: usize = 8;

    pub fn open(_interface: u32) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "steering is a stub here"))
    }

    pub fn add(&mut self, _flow: &Flow, _policing: Option<&Policing>, _processor: usize) -> io::Result<usize> {
        Ok(0)
    }

    pub fn remove(&mut self, _place: usize) -> io::Result<()> {
        Ok(())
    }

    pub fn thread(&self, _place: usize) -> Option<i32> {
        None
    }

    pub fn counted(&mut self, _place: usize) -> io::Result<(u64, u64)> {
        Ok((0, 0))
    }
}
