//! Tasks of one thread on tokio: one for each client, and one that turns the inline engine.
//!
//! ```sh
//! cargo run -p xwarp --features tokio --example tokio_echo -- --dev eth1                           # host B
//! cargo run -p xwarp --features tokio --example tokio_echo -- --dev eth1 --server 10.77.0.2 a b c  # hosts A
//! ```
//!
//! Each word comes back in capitals.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Parser;
use tokio::task::JoinSet;
use tokio::time::timeout;
use xwarp::cm::ConnectionRequest;
use xwarp::completion::{Arm, CompletionChannel};
use xwarp::config::{Progress, WaitMode};
use xwarp::tokio::Async;
use xwarp::{
    Access, CompletionQueue, CompletionStatus, MemoryRegion, Opcode, ProtectionDomain, QpConfig,
    QpState, QueuePair, RecvRequest, Rnic, RnicConfig, SendRequest, WorkCompletion, WrId,
};

/// How long an answer, a connection or its end may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a message at most.
const LEN: u32 = 64;

/// Sends the words of its clients back in capitals.
#[derive(Parser)]
struct Args {
    /// The network interface
    #[arg(long)]
    dev: String,
    /// TCP port of the server
    #[arg(long, default_value_t = 7474)]
    port: u16,
    /// As server: clients after which it ends; by default it does not
    #[arg(long)]
    clients: Option<usize>,
    /// As client: the server's address
    #[arg(long, requires = "words", conflicts_with = "clients")]
    server: Option<IpAddr>,
    /// As client: what to send
    #[arg(requires = "server")]
    words: Vec<String>,
}

/// One end of a connection, with a buffer for the message that comes and one for that which goes.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    channel: Async<CompletionChannel>,
    memory: MemoryRegion,
}

impl End {
    fn new(rnic: &Rnic, pd: &ProtectionDomain) -> anyhow::Result<Self> {
        let channel = rnic.create_completion_channel()?;
        let cq = rnic.create_cq_on(&channel, 16)?;
        let qp = pd.create_qp(&QpConfig::default(), &cq, &cq)?;
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let memory = pd.allocate(usize::try_from(2 * LEN)?, access)?;
        let mut end = Self {
            qp,
            cq,
            channel: channel.into_async()?,
            memory,
        };
        end.expect()?;
        Ok(end)
    }

    /// Posts the buffer for the next message.
    fn expect(&mut self) -> anyhow::Result<()> {
        let buffer = self.memory.local(0, LEN);
        Ok(self.qp.post_recv(RecvRequest::new(WrId(0), buffer))?)
    }

    fn send(&mut self, text: &str) -> anyhow::Result<()> {
        self.memory
            .bytes()
            .write(usize::try_from(LEN)?, text.as_bytes())?;
        let message = self.memory.local(LEN.into(), u32::try_from(text.len())?);
        let request = SendRequest::send(WrId(1), message).unsignaled();
        Ok(self.qp.post_send(request)?)
    }

    /// The next completion. Arms first and polls then: what completes in between is seen by the one
    /// or the other.
    async fn completion(&mut self) -> anyhow::Result<WorkCompletion> {
        loop {
            self.cq.arm(Arm::Next)?;
            if let Some(completion) = self.cq.poll()? {
                return Ok(completion);
            }
            self.channel.next().await?;
        }
    }

    /// The next message; `None` when the peer has closed.
    async fn message(&mut self) -> anyhow::Result<Option<String>> {
        let completion = self.completion().await?;
        match (completion.opcode, completion.status) {
            (Opcode::Receive, CompletionStatus::Success) => {}
            (_, CompletionStatus::Flushed) => return Ok(None),
            (opcode, status) => bail!("{opcode:?}: {status}"),
        }
        let mut text = vec![0; usize::try_from(completion.byte_len)?];
        self.memory.bytes().read(0, &mut text)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Waits until both sides have closed.
    async fn closed(&mut self) -> anyhow::Result<()> {
        let changes = self.qp.state_changes()?.into_async()?;
        let over = |state| matches!(state, QpState::Idle | QpState::Error);
        timeout(TIMEOUT, changes.wait_for(over)).await??;
        Ok(())
    }
}

/// Serves one client to its end.
async fn echo(mut end: End, remote: SocketAddr) -> anyhow::Result<()> {
    let mut messages = 0;
    while let Some(text) = end.message().await? {
        end.expect()?;
        end.send(&text.to_ascii_uppercase())?;
        messages += 1;
    }
    end.closed().await?;
    println!("{remote}: {messages} messages");
    Ok(())
}

fn admit(rnic: &Rnic, pd: &ProtectionDomain, request: ConnectionRequest) -> anyhow::Result<End> {
    let mut end = End::new(rnic, pd)?;
    request.accept(&mut end.qp, b"")?;
    Ok(end)
}

async fn serve(rnic: &Rnic, args: &Args) -> anyhow::Result<()> {
    let listener = rnic.listen((Ipv4Addr::UNSPECIFIED, args.port).into())?;
    println!("waiting for clients at {}", listener.addresses()[0]);
    let (mut listener, pd) = (listener.into_async()?, rnic.allocate_pd()?);
    let (mut served, mut tasks) = (0, JoinSet::new());
    while args.clients.is_none_or(|clients| served < clients) {
        let request = listener.accept().await?;
        let remote = request.remote();
        match admit(rnic, &pd, request) {
            Ok(end) => drop(tasks.spawn(async move {
                if let Err(error) = echo(end, remote).await {
                    println!("{remote}: {error:#}");
                }
            })),
            Err(error) => println!("{remote} could not be accepted: {error:#}"),
        }
        served += 1;
        // Removes the tasks that have ended.
        while tasks.try_join_next().is_some() {}
    }
    tasks.join_all().await;
    println!("{served} clients served");
    Ok(())
}

async fn ask(rnic: &Rnic, server: IpAddr, args: &Args) -> anyhow::Result<()> {
    let long = (args.words.iter()).find(|word| word.len() > LEN as usize);
    ensure!(long.is_none(), "a word has at most {LEN} bytes");
    let mut end = End::new(rnic, &rnic.allocate_pd()?)?;
    let server = SocketAddr::new(server, args.port);
    end.qp.begin_connect(server, b"", TIMEOUT)?.await?;
    for word in &args.words {
        end.send(word)?;
        let answer = timeout(TIMEOUT, end.message()).await;
        let answer = answer.context("the server does not answer")??;
        println!("{word} -> {}", answer.context("the server has closed")?);
        end.expect()?;
    }
    end.qp.begin_disconnect()?;
    end.closed().await
}

async fn run(args: &Args) -> anyhow::Result<()> {
    let config = RnicConfig::default()
        .progress(Progress::Inline)
        .wait_mode(WaitMode::Blocking);
    let rnic = Rnic::open(&args.dev, &config)?;
    tokio::spawn(rnic.drive()?);
    match args.server {
        None => serve(&rnic, args).await,
        Some(server) => ask(&rnic, server, args).await,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = run(&Args::parse()).await else {
        return ExitCode::SUCCESS;
    };
    eprintln!("tokio_echo: {error:#}");
    ExitCode::FAILURE
}
