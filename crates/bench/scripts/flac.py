#!/usr/bin/env python3
"""Takes the figures of docs/figures/flac.md, between its markers: `make flac` (as root, minutes).

`solera bench flac` measures; this puts what it finds into one table, a column for each model of slow
memory. With --quick everything is smaller: to see that it works, not for figures.
"""
import argparse, datetime, json, pathlib

import measuring
from measuring import wrapped

BEGIN, END = "<!-- figures: make flac -->", "<!-- end of the figures -->"
# Of rows with many peers, those that the page shows.
SHOWN = {"hit, 2 MiB, untouched": ["volume"], "hit, whole file, summed": ["DRAM", "volume"],
         "hit, 4 KiB, random": ["volume", "tmpfs, 4 KiB pages"],
         "explicit buffer, 2 MiB, summed": ["copied"], "explicit buffer, whole file, summed": ["copied"],
         "explicit buffer, 2 MiB, untouched": ["copied"]}


def pairs(model):
    """Each row with each of its peers that is shown."""
    for row in model["rows"]:
        shown = SHOWN.get(row["row"])
        if row["row"].startswith("read "):
            shown = ["volume"]
        for peer in row["peers"]:
            if shown is None or peer["peer"] in shown:
                yield row, peer


def time(us):
    return f"{us:.2f}" if us < 10 else f"{us:,.0f}"


def cell(row, peer):
    if "more_us" in peer:
        reached = f'{peer["more_us"]:+.0f} us'
    else:
        reached = f'{peer["ratio"]:.2f}'
    text = f'{reached} ({time(row["us"])})'
    return f"**{text}**" if peer.get("met") is False else text


def aims(found):
    """What is aimed at: one figure for all models, or one for some."""
    by_aim = {}
    for name, (_, peer) in found.items():
        if "at_most_more_us" in peer:
            by_aim.setdefault(f'{peer["at_most_more_us"]:+.0f} us', []).append(name)
        elif "at_most" in peer:
            by_aim.setdefault(f'{peer["at_most"]:.2f}', []).append(name)
    all_alike = len(by_aim) == 1 and sum(map(len, by_aim.values())) == len(found)
    return "; ".join(aim if all_alike else f"{aim} {', '.join(names)}" for aim, names in by_aim.items())


def table(report):
    names = [model["memory"] for model in report["models"]]
    lines = {}
    for model in report["models"]:
        for row, peer in pairs(model):
            lines.setdefault((row["row"], peer["peer"]), {})[model["memory"]] = (row, peer)
    text = [f"| | beside | at most | {' | '.join(names)} |", "|---" * (len(names) + 3) + "|"]
    for (row, peer), found in lines.items():
        cells = [cell(*found[name]) if name in found else "-" for name in names]
        text.append(f"| {row} | {peer} | {aims(found)} | {' | '.join(cells)} |")
    return "\n".join(text)


def pages(count):
    return "2 MiB" if count > 4096 else "4 KiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=9, help="rounds that count, of each row")
    parser.add_argument("--quick", action="store_true", help="smaller, to see that it works")
    parser.add_argument("--page", type=pathlib.Path, default=measuring.ROOT / "docs/figures/flac.md")
    options = parser.parse_args()
    about = measuring.machine()
    words = ["--repeat", 1, "--size", "16M"] if options.quick else ["--repeat", options.repeat]
    report = json.loads(measuring.run(measuring.SOLERA, "bench", "flac", "--json", *words))
    skipped = sorted({why for model in report["models"] for why in model["skipped"]})
    told = (f"Taken on {datetime.date.today()}: medians of {report['repeat']}, peers in turns, a file of "
            f"{report['size_bytes'] >> 20} MiB. Pages of the volume {pages(report['volume_page_bytes'])}, of "
            f"the cache {pages(report['cache_page_bytes'])}. Machine: {about}.")
    told += "".join(f" Skipped: {why}." for why in skipped)
    page = options.page.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    text = wrapped(f"{before}{BEGIN}\n\n{told}\n\n{table(report)}\n\n{END}{after}")
    options.page.write_text(text)
    print(table(report))


if __name__ == "__main__":
    main()
