//! `--class`, of all commands that write a volume.

use clap::Args;

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
