//! Stacks on a link in memory, in virtual time.

mod blind;
mod close;
mod data;
mod flood;
mod frames;
mod garbage;
mod handshake;
mod hoard;
mod interface;
mod local_peers;
mod log;
mod loss;
mod net;
mod nic_checksum;
mod outage;
mod own_host;
mod peer;
mod scale;
mod silent;
mod stray;
mod turn;
mod window;
