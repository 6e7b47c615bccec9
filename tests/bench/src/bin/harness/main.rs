//! The harness of `tools/bench`: what is measured between two hosts made of network namespaces, in
//! rounds of all contenders in turn, of which tables show the medians. Root only.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::{Parser, Subcommand};

mod against;
mod figures;
mod flood;
mod lab;
mod link;
mod local;
mod loss;
mod programs;
mod queues;
mod reports;

use lab::Programs;
use programs::Group;

/// The tables of `tools/bench`, which builds `link` and `xwarp` beside this program
#[derive(Parser)]
struct Cli {
    /// Rounds of all contenders
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[command(subcommand)]
    table: Table,
}

#[derive(Subcommand)]
enum Table {
    /// RDMA next to raw `AF_XDP` and to the kernel's TCP
    Link {
        #[arg(default_values_t = [1500, 3500, 9000, 65535])]
        mtus: Vec<u32>,
    },
    /// Several queues and engines; the driver alone; an idle RNIC
    Queues {
        /// The minimal loop over libxdp's rings
        #[arg(long)]
        minimal: PathBuf,
        /// The same by the crate xsk-rs
        #[arg(long)]
        xsk_rs: PathBuf,
    },
    /// Next to the command of another commit
    Against { xwarp: PathBuf },
    /// Unmodified programs over RDMA, next to the same over the kernel's TCP
    Programs {
        /// The program of two MPI ranks
        #[arg(long)]
        ranks: PathBuf,
        #[arg(value_enum, default_values_t = Group::ALL)]
        groups: Vec<Group>,
    },
    /// Programs of one host, by a switch
    Local,
    /// A link that loses segments
    Loss,
    /// A server that is flooded
    Flood,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let built = Programs::beside_this()?;
    match cli.table {
        Table::Link { mtus } => link::table(&built, cli.rounds, &mtus),
        Table::Queues { minimal, xsk_rs } => {
            let loops = [
                queues::Loop {
                    name: "minimal loop",
                    program: &minimal,
                    turn: "turn",
                },
                queues::Loop {
                    name: "xsk-rs",
                    program: &xsk_rs,
                    turn: "xsk_rs::Loop::turn",
                },
            ];
            queues::table(&built, cli.rounds, &loops)
        }
        Table::Against { xwarp } => against::table(&built, cli.rounds, &xwarp),
        Table::Programs { ranks, groups } => programs::table(&built, cli.rounds, &ranks, &groups),
        Table::Local => {
            local::table(&built, cli.rounds);
            Ok(())
        }
        Table::Loss => {
            loss::table(&built, cli.rounds);
            Ok(())
        }
        Table::Flood => flood::table(&built),
    }
}
