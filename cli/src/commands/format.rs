//! `solera format`.

use crate::args::FormatArgs;
use crate::commands::info;
use crate::failure::Outcome;
use crate::output;
use crate::size;

/// Makes a volume and says what was made.
pub fn run(args: &FormatArgs) -> Outcome {
    let options = volume::FormatOptions {
        size: args.size,
        groups: args.groups,
        label: args.label.clone(),
        force: args.force,
        permissions: args.permissions,
        class: args.class,
        ..volume::FormatOptions::default()
    };
    volume::format(&args.path, &options)?;
    let made = volume::info(&args.path)?;
    if args.json {
        output::emit_json(&info::to_json(&made))?;
    } else {
        let class = args.class.map_or_else(String::new, |class| format!("--class {class} "));
        let text = format!(
            "{}: {}, {} free, class {} ({})\nNext: solera run {class}--volume {} --at /pm -- PROGRAM\n",
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
