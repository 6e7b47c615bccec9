//! A ping-pong over the kernel's TCP. Both sides spin, as both sides of `xwarp perf --wait busy`
//! do, or both sleep.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::bail;

use crate::latency::{WARM_UP, print};

pub(crate) fn pong(at: SocketAddrV4, bytes: usize, sleeps: bool) -> anyhow::Result<()> {
    let listener = TcpListener::bind(at)?;
    println!("ready");
    let (mut stream, _) = listener.accept()?;
    prepare(&stream, sleeps)?;
    let mut message = vec![0; bytes];
    while receive(&mut stream, &mut message)? {
        stream.write_all(&message)?;
    }
    Ok(())
}

pub(crate) fn ping(
    to: SocketAddrV4,
    bytes: usize,
    count: usize,
    sleeps: bool,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    prepare(&stream, sleeps)?;
    let mut message = vec![0x5a; bytes];
    let mut round_trips = Vec::with_capacity(count);
    for round in 0..count + WARM_UP {
        let began = Instant::now();
        stream.write_all(&message)?;
        if !receive(&mut stream, &mut message)? {
            bail!("the other side has gone");
        }
        if round >= WARM_UP {
            round_trips.push(began.elapsed());
        }
    }
    print(round_trips);
    Ok(())
}

fn prepare(stream: &TcpStream, sleeps: bool) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(!sleeps)
}

/// Spins or sleeps until a whole message is there; false at the end of the stream.
fn receive(stream: &mut TcpStream, message: &mut [u8]) -> std::io::Result<bool> {
    let mut there = 0;
    while there < message.len() {
        match stream.read(&mut message[there..]) {
            Ok(0) => return Ok(false),
            Ok(bytes) => there += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
