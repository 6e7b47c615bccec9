//! Flows that the XDP program redirects to this process.

use std::net::SocketAddr;
use std::sync::Arc;

use super::error::SteeringError;
use super::queues::OpenQueues;
use crate::attach::Attachment;
use crate::attach::board::StateBoard;

/// Flows that the XDP program redirects to this process. Dropping it removes them, and detaches the
/// program if this process attached it.
pub struct Steering {
    attachment: Attachment,
    /// The first queue that has a socket.
    first: u32,
    flows: Vec<SocketAddr>,
    board: Arc<StateBoard>,
}

impl Steering {
    /// Puts the sockets into the program's slots, and removes flows that a killed process left
    /// there.
    pub(super) fn begin(attachment: Attachment, open: &OpenQueues) -> Result<Self, SteeringError> {
        let maps = attachment.maps();
        maps.flows.clear()?;
        for (queue, socket) in open.sockets() {
            maps.sockets.set(queue, socket)?;
        }
        let firsts = open.firsts();
        Ok(Self {
            first: firsts.first().copied().unwrap_or_default(),
            board: Arc::new(StateBoard::begin(&maps.board, firsts)?),
            attachment,
            flows: Vec::new(),
        })
    }

    /// Board where engines of the interface publish their state to other processes.
    pub fn board(&self) -> Arc<StateBoard> {
        Arc::clone(&self.board)
    }

    /// Redirects TCP to this local address and port from now on.
    ///
    /// # Errors
    ///
    /// [`SteeringError`]: the program's table of flows is full, or the kernel refuses.
    pub fn add(&mut self, local: SocketAddr) -> Result<(), SteeringError> {
        self.attachment
            .maps()
            .flows
            .insert(local.ip(), local.port(), self.first)?;
        self.flows.push(local);
        Ok(())
    }

    /// Returns TCP for this local address and port to the kernel.
    pub fn remove(&mut self, local: SocketAddr) {
        if let Some(at) = self.flows.iter().position(|&flow| flow == local) {
            self.flows.swap_remove(at);
            self.withdraw(local);
        }
    }

    fn withdraw(&mut self, local: SocketAddr) {
        if let Err(error) = self
            .attachment
            .maps()
            .flows
            .remove(local.ip(), local.port())
        {
            log::warn!("{local} stays in the steering map: {error}");
        }
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        while let Some(flow) = self.flows.pop() {
            self.withdraw(flow);
        }
    }
}
