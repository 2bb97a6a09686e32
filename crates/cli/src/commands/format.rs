//! `solera format`.

use std::path::Path;

use console::failure::Outcome;
use console::output;
use console::size;
use ddmap::reach::registry::Registry;
use volume::Info;

use crate::args::FormatArgs;
use crate::commands::info;
use crate::domain;
use crate::owner::Owner;

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
    if let (Some(name), Some(size)) = (&args.ddmap, args.size) {
        return of_domain(args, name, size, &options);
    }
    // One of the two is required.
    let path = args.path.as_deref().unwrap_or(Path::new(""));
    output::busy("formatting", || volume::format(path, &options))?;
    let made = volume::info(path)?;
    warn_of_missing(path, &made);
    if owner != Owner::default() && !path.is_file() {
        output::tell(format!(
            "the node of {} stays as it is: give its user permission (chown, or a udev rule)",
            path.display()
        ));
    }
    if args.json {
        output::emit_json(&info::to_json(&made))?;
    } else {
        let class = args.class.map_or_else(String::new, |class| format!("--class {class} "));
        let text = format!(
            "{}: {}, {} free, class {} ({})\nNext: solera run {class}--volume {} --at /pm -- \
             PROGRAM\n",
            path.display(),
            size::show(made.size_bytes),
            size::show(made.free_bytes),
            made.class,
            made.class_reason,
            path.display(),
        );
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}

/// Makes a volume of a domain.
fn of_domain(args: &FormatArgs, name: &str, size: u64, options: &volume::FormatOptions) -> Outcome {
    let region = domain::make(&Registry::find()?, name, size, options.clone())?;
    let stays = volume::own_bytes(size, options)?;
    let made = volume::info(&region)?;
    if args.json {
        output::emit_json(&info::to_json(&made))?;
    } else {
        let text = format!(
            "{name}: {}, {} free, on its host in {}, where {} always stay\nNext: solera run \
             --ddmap {name} -- PROGRAM, which sees it at /dm\n",
            size::show(made.size_bytes),
            size::show(made.free_bytes),
            region.display(),
            size::show(stays),
        );
        output::emit(text.as_bytes())?;
    }
    Ok(0)
}
