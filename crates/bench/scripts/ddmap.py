#!/usr/bin/env python3
"""Takes the figures of docs/figures/ddmap.md, between its markers: `make ddmap` (a minute or two).

`solera bench ddmap` measures; this puts what it finds into a table. With --quick everything is
smaller: to see that it works, not for figures.
"""
import argparse, datetime, json, os, pathlib

import measuring
from measuring import wrapped

BEGIN, END = "<!-- figures: make ddmap -->", "<!-- end of the figures -->"


def number(value, unit):
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{text} {unit}".strip()


def measured(what, unit):
    return f'{number(what["value"], unit)} ({what["spread_percent"]:.0f} %)'


def aim(peer, unit):
    """What is aimed at, and what was reached: bold where it is missed."""
    if "met" not in peer:
        return "-", f'{peer["ratio"]:.2f}'
    if "at_most_more" in peer:
        asked = f'at most +{peer["at_most_more"]:g} {unit}'
        reached = f'{peer["ratio"]:.2f}, {peer["more"]:+.1f} {unit}'
    elif "at_most" in peer:
        asked, reached = f'at most {peer["at_most"]:.2f}', f'{peer["ratio"]:.2f}'
    else:
        asked, reached = f'at least {peer["at_least"]:.2f}', f'{peer["ratio"]:.2f}'
    return asked, reached if peer["met"] else f"**{reached}**"


def table(report):
    lines = ["| row | measured (spread) | beside | that (spread) | aim | ratio |", "|---|---|---|---|---|---|"]
    for row in report["rows"]:
        unit = row["unit"]
        name, own = row["row"], measured(row, unit)
        if not row["peers"]:
            lines.append(f"| {name} | {own} | - | - | - | - |")
        for peer in row["peers"]:
            asked, reached = aim(peer, unit)
            lines.append(f'| {name} | {own} | {peer["peer"]} | {measured(peer, unit)} | {asked} | {reached} |')
            name, own = "", ""
    return "\n".join(lines)


def taken(report, about, how):
    """What stands above a table: when and how, and what is missing."""
    aims = [peer["met"] for row in report["rows"] for peer in row["peers"] if "met" in peer]
    text = (f"Taken on {datetime.date.today()}: {how} {sum(aims)} of {len(aims)} aims are met. "
            f"Machine: {about}.")
    if os.getloadavg()[2] > 1:
        text += " The machine had other work: to be measured anew on a quiet one."
    return text + "".join(f" Skipped: {why}." for why in report["skipped"])


def put(path, begin, end, text):
    """Puts it between a page's markers."""
    page = path.read_text()
    before, rest = page.split(begin)
    after = rest.split(end)[1]
    path.write_text(wrapped(f"{before}{begin}\n\n{text}\n\n{end}{after}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="rounds that count")
    parser.add_argument("--quick", action="store_true", help="smaller, to see that it works")
    parser.add_argument("--page", type=pathlib.Path, default=measuring.ROOT / "docs/figures/ddmap.md")
    options = parser.parse_args()
    about = measuring.machine()
    words = ["--rounds", 1, "--size", "8M"] if options.quick else ["--rounds", options.rounds]
    report = json.loads(measuring.run(measuring.SOLERA, "bench", "ddmap", "--json", *words))
    text = taken(report, about, f"medians of {report['rounds']}, peers in turns. "
                 f"{report['nodes']} nodes on loopback, the host's {report['size_bytes'] >> 20} MiB, a file of "
                 f"{report['file_bytes'] >> 20} MiB, of which {report['away_percent']:.0f} % were away.")
    put(options.page, BEGIN, END, f"{text}\n\n{table(report)}")
    print(table(report))


if __name__ == "__main__":
    main()
