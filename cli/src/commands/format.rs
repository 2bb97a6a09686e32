//! `solera format`.

use std::path::Path;

use volume::Info;

use crate::args::FormatArgs;
use crate::commands::info;
use crate::failure::Outcome;
use crate::output;
use crate::owner::Owner;
use crate::size;

/// Warns of a volume for which the file system beneath has too little.
pub fn warn_of_missing(path: &Path, made: &Info) {
    let (Some(free), true) = (made.beneath_free_bytes, made.missing_bytes > 0) else { return };
    eprintln!(
        "solera: {}: the file system beneath has {} left, and the volume takes up to {} more: it \
         says \"no space left\" as soon as that is used up. Take a smaller --size, or make room \
         there.",
        path.display(),
        size::show(free),
        size::show(made.size_bytes.saturating_sub(made.allocated_bytes)),
    );
}

/// Makes a volume and says what was made.
pub fn run(args: &FormatArgs) -> Outcome {
    let owner = args.owner.as_deref().map(Owner::parse).transpose()?.unwrap_or_default();
    let options = volume::FormatOptions {
        size: args.size,
        groups: args.groups,
        label: args.label.clone(),
        force: args.force,
        permissions: args.permissions,
        owner: owner.user,
        group: owner.group,
        class: args.class,
        reserve: args.reserve,
        ..volume::FormatOptions::default()
    };
    output::busy("formatting", || volume::format(&args.path, &options))?;
    let made = volume::info(&args.path)?;
    warn_of_missing(&args.path, &made);
    if owner != Owner::default() && !args.path.is_file() {
        output::tell(format!(
            "the node of {} stays as it is: give its user permission (chown, or a udev rule)",
            args.path.display()
        ));
    }
    if args.json {
        output::emit_json(&info::to_json(&made))?;
    } else {
        let class = args.class.map_or_else(String::new, |class| format!("--class {class} "));
        let text = format!(
            "{}: {}, {} free, class {} ({})\nNext: solera run {class}--volume {} --at /pm -- \
             PROGRAM\n",
            args.path.display(),
            size::show(made.size_bytes),
            size::show(made.free_bytes),
            made.class,
            made.class_reason,
            args.path.display(),
        );
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}
