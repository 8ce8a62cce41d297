"""The style sheet of a report; its colours are those of `core.palette`."""

from __future__ import annotations

from tidegraph.core.palette import LIGHT, SCHEMES, SERIES_CLASSES

__all__ = ["STYLE"]

STYLE = f"""{SCHEMES}* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }}
body {{ margin: 0; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  overflow-wrap: anywhere; }}
main {{ max-width: 62rem; margin: 0 auto; padding: 2.5rem 1rem 4rem; }}
h1 {{ font-size: 1.75rem; line-height: 1.2; margin: 0 0 .4rem; font-weight: 650; }}
h2 {{ font-size: 1.2rem; line-height: 1.3; margin: 3rem 0 .25rem; padding-top: 1rem;
  border-top: 1px solid var(--line); font-weight: 650; }}
h3 {{ font-size: 1rem; line-height: 1.35; margin: 0; font-weight: 600; }}
p {{ margin: .4rem 0; max-width: 46rem; }}
.soft, figcaption p, summary {{ color: var(--soft); }}
figcaption p, summary, .small {{ font-size: .875rem; line-height: 1.45; }}
.cards {{ display: grid; gap: .75rem; margin: 1.25rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); }}
.card {{ background: var(--card); border-radius: .5rem; padding: .9rem 1rem; }}
.card p {{ margin: 0; font-size: .875rem; line-height: 1.45; }}
.card .value {{ font-size: 2rem; line-height: 1.25; font-weight: 650;
  font-variant-numeric: tabular-nums; }}
.card .value small {{ font-size: 1rem; font-weight: 400; color: var(--soft); }}
.good {{ color: var(--good); }} .bad {{ color: var(--bad); }}
.verdict {{ font-size: 1.1rem; line-height: 1.5; }}
.note {{ border-left: 3px solid var(--bad); padding-left: .75rem; }}
.figures {{ display: grid; gap: 2rem 2.5rem; margin: 1.25rem 0; align-items: start;
  grid-template-columns: minmax(0, 1fr); }}
figure {{ margin: 0; min-width: 0; }}
figcaption {{ margin-bottom: .5rem; }} figcaption p {{ margin: .15rem 0; }}
svg {{ display: block; width: 100%; height: auto; max-width: 34rem; }}
svg text {{ fill: var(--soft); font-size: 12px; font-family: inherit; paint-order: stroke;
  stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }}
svg .grid {{ stroke: var(--line); stroke-width: 1; }}
svg .rule {{ stroke: var(--soft); stroke-width: 1; stroke-dasharray: 4 3; fill: none; }}
svg .curve {{ stroke: currentColor; stroke-width: 1.8; fill: none; stroke-linejoin: round; }}
svg .mark {{ fill: currentColor; }}
svg .faint {{ fill: currentColor; fill-opacity: .65; }}
svg .hollow {{ stroke: var(--soft); stroke-width: 1.3; fill: none; }}
{SERIES_CLASSES}
.legend {{ list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; padding: 0;
  margin: 0 0 .4rem; font-size: .8125rem; line-height: 1.5; }}
.legend li::before {{ content: ""; display: inline-block; width: .7rem; height: .7rem;
  border-radius: .2rem; background: currentColor; margin-right: .4rem; vertical-align: -.05rem; }}
.legend span {{ color: var(--ink); }}
@media (min-width: 54.5rem), print {{ /* two columns of at least 25rem on a screen */
  .figures {{ grid-template-columns: repeat(2, minmax(0, 1fr)); }}
  .figures > figure:last-child:nth-child(odd) {{ grid-column: 1 / -1; }}
  /* The last of an odd number is centred; a single one has its caption at the left. */
  .figures > figure:has(> svg):last-child:nth-child(odd):not(:only-child) {{
    width: calc(50% - 1.25rem); justify-self: center; }}
  .figures > figure:has(> svg):only-child {{ display: grid; column-gap: 2.5rem;
    grid-template: auto auto 1fr / repeat(2, minmax(0, 1fr)); }}
  .figures > figure:has(> svg):only-child > * {{ grid-column: 1; }}
  .figures > figure:has(> svg):only-child > svg {{ grid-column: 2; grid-row: 1 / span 4; }} }}
.scroll {{ overflow-x: auto; max-width: 100%; }}
table {{ border-collapse: collapse; font-size: .875rem; line-height: 1.4; margin: .5rem 0;
  font-variant-numeric: tabular-nums; overflow-wrap: normal; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0;
  border-bottom: 1px solid var(--line); }}
td {{ overflow-wrap: anywhere; min-width: 4rem; }}
.whole {{ white-space: nowrap; }}
th {{ font-weight: 500; color: var(--soft); }}
th.number, td.number {{ text-align: right; padding: .3rem 0 .3rem 1rem; white-space: nowrap; }}
.changed {{ font-weight: 650; }}
details {{ margin: .5rem 0; }} summary {{ cursor: pointer; }}
pre {{ background: var(--card); border-radius: .5rem; padding: .75rem 1rem; overflow-x: auto;
  font-size: .875rem; line-height: 1.5; margin: .5rem 0; white-space: pre-wrap; }}
code, pre {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }}
.share {{ display: flex; height: .7rem; border-radius: .2rem; overflow: hidden; margin: .5rem 0;
  background: var(--line); }}
.share i {{ background: currentColor; display: block; }}
.share b {{ background: var(--ink); flex: none; width: 2px; margin: 0 2px; }}
@media (max-width: 40rem) {{ main {{ padding-top: 1.25rem; }} h1 {{ font-size: 1.4rem; }}
  .card .value {{ font-size: 1.75rem; }} }}
@media print {{ :root {{ color-scheme: light; {LIGHT} }}
  body {{ font-size: 10pt; }} main {{ max-width: none; padding: 0; }}
  figure, .card, tr {{ break-inside: avoid; }} h2, h3, figcaption {{ break-after: avoid; }}
  svg {{ max-width: none; }} }}
"""
