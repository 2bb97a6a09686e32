//! `--class`, of all commands that write a volume.

use clap::Args;

use super::{Command, NumaCommand};

/// The class that a volume's memory is taken for.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassArg {
    /// Take the volume's memory for this class whatever it is: byte, cache-line, volatile or page.
    /// `page` lets a volume on an ordinary disk be written, which a power cut may tear. As
    /// `SOLERA_CLASS`.
    #[arg(long)]
    pub class: Option<pmem::Class>,
}

impl ClassArg {
    /// From here on every volume that this process attaches, and those that the programs it starts
    /// attach, is taken for this class. No thread has been started yet.
    pub fn force(self) {
        if let Some(class) = self.class {
            // SAFETY: no other thread is there that could read the environment.
            unsafe { std::env::set_var("SOLERA_CLASS", class.to_string()) };
        }
    }
}

impl Command {
    /// The class that the command line names; `format` has its own, and `run` looks first which one
    /// is in force.
    pub fn class(&self) -> ClassArg {
        match self {
            Self::Mount(args) => args.class,
            Self::Cp(args) => args.class,
            Self::Import(args) => args.class,
            Self::Fsck(args) => args.class,
            Self::Grow(args) => args.class,
            Self::Trim(args) => args.class,
            Self::Upgrade(args) => args.class,
            Self::Detach(args) => args.class,
            Self::Defrag(args) => args.class,
            Self::Age(args) => args.class,
            Self::Numa(args) => match &args.command {
                NumaCommand::Set { class, .. } => *class,
                NumaCommand::Get { .. } => ClassArg::default(),
            },
            _ => ClassArg::default(),
        }
    }
}
