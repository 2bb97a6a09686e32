//! `solera format`.

use crate::args::FormatArgs;
use crate::commands::info;
use crate::failure::Outcome;
use crate::output;
use crate::owner::Owner;
use crate::size;

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
        ..volume::FormatOptions::default()
    };
    output::busy("formatting", || volume::format(&args.path, &options))?;
    let made = volume::info(&args.path)?;
    if owner != Owner::default() && !args.path.is_file() {
        output::tell(format!(
            "the node of {} stays as it is: give its user permission (chown, or a udev rule)",
            args.path.display()
        ));
    }
    if args.json {
        output::emit_json(&info::to_json(&made))?;
    } else {
        let text = format!(
            "{}: {}, {} free, class {} ({})\nNext: solera run --volume {} --at /pm -- PROGRAM\n",
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
