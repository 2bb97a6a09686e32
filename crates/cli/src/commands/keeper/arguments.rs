//! The arguments of `solera keeper`.

use clap::Args;

/// Mount volumes in a name space of its own, for programs that no library can enter.
///
/// Programs under `solera run` start it; it is not for people. It listens at its standard input.
#[derive(Args)]
pub struct KeeperArgs {
    /// Of each volume: its file, where it is to be seen, and `rw` or `ro`.
    #[arg(num_args = 3.., required = true)]
    pub volumes: Vec<std::path::PathBuf>,
}
