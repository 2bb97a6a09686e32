//! A store of release 0.2 becomes one of this one, at its node's start: its structures are those of
//! this build but for what a page's word and place may say besides, so numbers change, and nothing
//! else. (A page of 0.2 is never clean, and has no spare.)
//!
//! A process of 0.2 that has a volume attached would open pages that are clean: so while one lives
//! nothing is changed. The bytes of all process slots are held meanwhile, so none takes one; one
//! that has looked at the layout before, and takes its slot behind that, is refused by the node.
//!
//! CRASH: what the node is says so last; everything before can be done again.

use crate::shared_memory::error::DomainError;
use crate::shared_memory::store::{FORMAT, NODE, Store};
use crate::shared_memory::table::Table;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The format of release 0.2.
const BEFORE: u32 = FORMAT - 1;
/// Of a volume's folder: what says its format.
const SAY_SO: [&str; 4] = ["about", "removed", "going", "arriving"];

fn format_of(value: &Value) -> Option<u64> {
    value.get("format")?.as_u64()
}

impl Store {
    /// A file that says its format, if it is the one before.
    fn of_before(&self, path: &Path) -> Result<Option<Value>, DomainError> {
        let value = self.read::<Value>(path)?;
        Ok(value.filter(|value| format_of(value) == Some(BEFORE.into())))
    }

    fn set_format(&self, path: &Path) -> Result<(), DomainError> {
        let Some(mut value) = self.of_before(path)? else { return Ok(()) };
        if let Some(all) = value.as_object_mut() {
            all.insert("format".to_owned(), FORMAT.into());
        }
        self.write(path, &serde_json::to_vec_pretty(&value).unwrap_or_default())
    }

    /// Converts the store, if it is one of release 0.2. No node may use it. Refused while a process
    /// has a volume of it attached.
    pub fn convert(&self) -> Result<(), DomainError> {
        let node = self.path().join(NODE);
        if self.of_before(&node)?.is_none() {
            return Ok(());
        }
        let folders: Vec<PathBuf> =
            ["volumes", "kept"].iter().flat_map(|of| self.each(of)).collect();
        let asked = format!("convert the store {} of release 0.2", self.path().display());
        let mut held = Vec::new();
        for folder in folders.iter().filter(|folder| Table::is_made(folder)) {
            let all = Table::hold_all(folder).map_err(|error| {
                DomainError::new(&asked, format!("{}: {error}", folder.display()), "")
            })?;
            match all {
                Ok(live) => held.push((folder, live)),
                Err(users) => {
                    let found = format!(
                        "processes of that release have {} attached: {}",
                        folder.display(),
                        users.join(", ")
                    );
                    let advice = "end them, and start the node again; or start it by that release";
                    return Err(DomainError::new(asked, found, advice));
                }
            }
        }
        for (folder, _) in &held {
            Table::set_layout(folder).map_err(|error| {
                DomainError::new(&asked, format!("{}: {error}", folder.display()), "")
            })?;
        }
        for folder in &folders {
            for name in SAY_SO.iter().filter(|name| fs::exists(folder.join(name)).unwrap_or(true)) {
                self.set_format(&folder.join(name))?;
            }
        }
        // PERSIST: behind all else.
        self.set_format(&node)
    }
}
