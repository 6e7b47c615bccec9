//! Latency by Sends and Receives: the server sends every message back, the client counts the time.
//!
//! ```sh
//! ping_pong --dev eth1                       # host B
//! ping_pong --dev eth1 10.77.0.2             # host A
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use xwarp::buffers::{Buffer, BufferRequest, PostedBuffers};
use xwarp::config::Progress;
use xwarp::event::{AsyncEventKind, ConnectionEnd};
use xwarp::{
    CompletionQueue, CompletionStatus, Opcode, QpConfig, QueuePair, Rnic, RnicConfig,
    WorkCompletion, WrId,
};

/// How long a message or a connection may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server waits for its client.
const LONG: Duration = Duration::from_hours(1);

/// Measures how long a message takes there and back.
#[derive(Parser)]
struct Args {
    /// The network interface
    #[arg(long)]
    dev: String,
    /// TCP port of the server
    #[arg(long, default_value_t = 7471)]
    port: u16,
    /// Bytes of a message, the same at both ends
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    size: u32,
    /// Messages that the client sends
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// The server's address; without it this is the server
    server: Option<IpAddr>,
}

/// Names of work requests, which their completions bring back.
const RECEIVE: WrId = WrId(1);
const SEND: WrId = WrId(2);

/// What both ends have: a connection, and buffers, each of which is here or with a work request.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    posted: PostedBuffers,
    free: Vec<Buffer>,
    size: u32,
}

impl End {
    fn new(rnic: &Rnic, size: u32) -> anyhow::Result<Self> {
        let pd = rnic.allocate_pd()?;
        // Room for whatever can be outstanding: a Send and a Receive.
        let cq = rnic.create_cq(4)?;
        let config = QpConfig::default().send_depth(2).recv_depth(2);
        Ok(Self {
            qp: pd.create_qp(&config, &cq, &cq)?,
            cq,
            posted: PostedBuffers::default(),
            free: pd.allocate_buffers(2, size)?,
            size,
        })
    }

    fn free(&mut self) -> anyhow::Result<Buffer> {
        self.free.pop().context("all buffers are posted")
    }

    fn expect(&mut self) -> anyhow::Result<()> {
        let buffer = self.free()?;
        self.posted.post_recv(&mut self.qp, RECEIVE, buffer)?;
        Ok(())
    }

    fn send(&mut self, message: Buffer) -> anyhow::Result<()> {
        let request = BufferRequest::send(SEND, message, self.size);
        self.posted.post_send(&mut self.qp, request)?;
        Ok(())
    }

    /// The end of the Receive, or of a Send that has failed, and its buffer. Those of Sends that
    /// were done are free again.
    fn next(&mut self, timeout: Duration) -> anyhow::Result<(WorkCompletion, Buffer)> {
        loop {
            let next = self.cq.wait(timeout)?;
            let mut next =
                next.with_context(|| format!("the other side has sent nothing for {timeout:?}"))?;
            let buffer = self.posted.take(&mut next).context("nobody's completion")?;
            if next.wr_id != SEND || !next.is_success() {
                return Ok((next, buffer));
            }
            self.free.push(buffer);
        }
    }
}

fn serve(rnic: &Rnic, args: &Args) -> anyhow::Result<()> {
    let mut listener = rnic.listen((Ipv4Addr::UNSPECIFIED, args.port).into())?;
    println!("waiting for a client at {}", listener.addresses()[0]);
    let request = listener.accept(LONG)?.context("no client has come")?;
    let mut end = End::new(rnic, args.size)?;
    // Before accepting, as the first message may come at once: one without a buffer ends the
    // connection.
    end.expect()?;
    request.accept(&mut end.qp, b"")?;
    for round in 0_u32.. {
        let (completion, message) = end.next(TIMEOUT)?;
        match completion.status {
            CompletionStatus::Success => {}
            // No message comes into the buffer again. The client is expected to have closed.
            CompletionStatus::Flushed => {
                let why = end.qp.why_ended().context("a flush has a cause")?;
                let closed = ConnectionEnd::Event(AsyncEventKind::Closed);
                ensure!(why == closed, "the connection has ended: {why}");
                println!("{round} messages sent back");
                return Ok(());
            }
            status => bail!("a {:?} failed: {status}", completion.opcode),
        }
        ensure!(completion.byte_len == args.size, "the sizes are not equal");
        // In this order, as the answer's answer may come at once. Nothing is copied: what has come
        // is what is sent.
        end.expect()?;
        end.send(message)?;
    }
    Ok(())
}

fn measure(rnic: &Rnic, server: IpAddr, args: &Args) -> anyhow::Result<()> {
    let mut end = End::new(rnic, args.size)?;
    end.qp.connect((server, args.port).into(), b"", TIMEOUT)?;
    let len = usize::try_from(args.size)?;
    let mut times = Vec::new();
    for round in 0..args.count {
        let content = round.to_le_bytes()[0];
        let mut message = end.free()?;
        message.fill(0..len, content)?;
        let began = Instant::now();
        end.expect()?;
        end.send(message)?;
        let (completion, answer) = end.next(TIMEOUT)?;
        times.push(began.elapsed());
        ensure!(
            completion.is_success() && completion.opcode == Opcode::Receive,
            "message {round} failed: {:?}: {}",
            completion.opcode,
            completion.status
        );
        let same = answer.to_vec() == vec![content; len];
        ensure!(same, "message {round} has come back changed");
        end.free.push(answer);
    }
    end.qp.disconnect(TIMEOUT)?;
    times.sort_unstable();
    let micros = |at: usize| times[at].as_secs_f64() * 1e6;
    let (median, worst) = (micros(times.len() / 2), micros(times.len() - 1));
    println!(
        "there and back [us]: min {:.1}, median {median:.1}, max {worst:.1}",
        micros(0)
    );
    println!(
        "{} messages of {} bytes, all as they were sent",
        args.count, args.size
    );
    Ok(())
}

fn run(args: &Args) -> anyhow::Result<()> {
    // The thread that waits for the completion moves the data itself: no other has to be woken for
    // it.
    let config = RnicConfig::default().progress(Progress::Inline);
    let rnic = Rnic::open(&args.dev, &config)?;
    match args.server {
        None => serve(&rnic, args),
        Some(server) => measure(&rnic, server, args),
    }
}

fn main() -> ExitCode {
    let Err(error) = run(&Args::parse()) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("ping_pong: {error:#}");
    ExitCode::FAILURE
}
