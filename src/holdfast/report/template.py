"""The page's HTML: what comes from a run is escaped, only our own drawings, style and script are not."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{{ run_name }} - Holdfast run report</title>
<style>{{ style|safe }}</style>
</head>
<body>
<main>
{%- macro chart(svg) %}<figure class="chart">{{ svg|safe }}</figure>{% endmacro %}
{%- macro events(lines) %}
<ol class="events">
{%- for line in lines %}
<li class="{{ line.weight }}"><span class="when">{{ line.when }}</span>
<span class="what">{{ line.text }}</span></li>
{%- endfor %}
</ol>
{%- endmacro %}
{%- macro cut(count) %}
{%- if count %}<p class="cut">Cut here: {{ "{:,}".format(count) }} more characters.</p>{% endif %}
{%- endmacro %}
{%- macro answer(item) %}
{%- if item %}
<p class="marks">
{%- if item.score %}<span>proxy <b>{{ item.score }}</b></span>{% endif %}
{%- if item.gold %}<span>gold <b>{{ item.gold }}</b></span>{% endif %}
{%- if not item.finished %}<span class="warn">unfinished</span>{% endif %}
</p>
{%- if item.text %}<div class="text" dir="auto">{{ item.text }}</div>
{%- else %}<p class="none">The answer is empty.</p>{% endif %}{{ cut(item.omitted) }}
{%- else %}
<p class="none">No answer recorded here.</p>
{%- endif %}
{%- endmacro %}
<header>
<p class="kicker">Holdfast run report</p>
<h1><bdi>{{ run_name }}</bdi> <span class="status {{ status.replace(" ", "-") }}">{{ status }}</span></h1>
{%- if facts %}
<p class="facts">{% for name, value in facts %}<span>{{ name }} <b>{{ value }}</b></span>{% endfor %}</p>
{%- endif %}
{%- if ending %}
<div class="ending {{ ending.level }}">
<p class="headline">{{ ending.headline }}</p>
{%- if ending.evidence %}
<p class="why">{{ ending.evidence }}</p>
{%- endif %}
</div>
{%- endif %}
<p class="result">{{ result }}</p>
{%- for note in notes %}
<p class="note">{{ note }}</p>
{%- endfor %}
</header>
{%- if tiles %}
<section aria-label="Key figures">
<dl class="tiles">
{%- for tile in tiles %}
<div><dt>{{ tile.label }}</dt><dd class="value">{{ tile.value }}</dd>
<dd class="under">{{ tile.note }}</dd></div>
{%- endfor %}
</dl>
</section>
{%- endif %}
{%- if rounds.rows %}
{%- macro people(cell, label) %}
<td class="people" data-label="{{ label }}">
{%- if cell %}<b>{{ cell.rate }}</b>{{ cell.glyph|safe }}<span class="small">
{%- if cell.claimed %}<span class="claimed{% if cell.overclaimed %} over{% endif %}">claimed {{ cell.claimed }}</span>
{%- endif %}{{ cell.note }}</span>
{%- else %}<span class="small">not asked</span>{% endif %}</td>
{%- endmacro %}
<section id="rounds">
<h2>Round by round</h2>
<table class="rounds">
<thead><tr><th>Round</th><th>Verdict</th><th>People prefer it to the reference</th>
<th>to the last good policy</th><th>What was seen and done</th></tr></thead>
<tbody>
{%- for row in rounds.rows %}
<tr class="{{ row.look }}{% if row.undone %} undone{% endif %}">
<td class="round" data-label="Round">{{ row.number }}</td>
<td class="verdict">{% if row.level %}<span class="level {{ row.look }}">{{ row.level }}</span>{% endif %}
{%- if row.undone %} <span class="gone">undone</span>{% endif %}</td>
{{- people(row.reference, "People prefer it to the reference") }}
{{- people(row.anchor, "to the last good policy") }}
<td class="deeds">{% for deed in row.deeds %}<p class="{{ deed.weight }}">{{ deed.words }}</p>{% endfor %}</td>
</tr>
{%- endfor %}
</tbody></table>
{%- if rounds.in_all > rounds.rows|length %}
<p class="note">{{ rounds.rows|length }} of {{ "{:,}".format(rounds.in_all) }} rounds are shown:
the first, the last, and those in which something happened.</p>
{%- endif %}
<p class="legend">Dot and bar: how often people preferred the policy, with the 95% interval; the tick is one half.
Diamond: what the reward ensemble claimed. A claim above the bar is marked: it promises more than people find.</p>
</section>
{%- endif %}
{%- if head %}
<section>
<h2>Did it get better?</h2>
{%- for wide, narrow in head %}
<div class="wide">{{ chart(wide) }}</div><div class="narrow">{{ chart(narrow) }}</div>
{%- endfor %}
{%- if not has_gold %}
<p class="note">The truth (gold) is not known in this run. The proxy alone cannot tell whether answers
got better: read it together with KL, spread and the answers below.</p>
{%- endif %}
<p class="legend">
{%- if has_refresh %}Dashed lines: a new version of the reward ensemble
{%- if marked_every > 1 %} (one in {{ "{:,}".format(marked_every) }}){% endif %}. {% endif %}
{%- if has_refused %}Dotted lines (×): a refresh that the gate refused. {% endif %}
{%- if has_rollback %}Solid lines: a rollback. Hatched: steps that it undid. {% endif %}
{%- if has_stripes %}Shaded stripes: every second round. {% endif -%}
<span class="scripted" hidden>Point at a chart to read its values.</span></p>
</section>
{%- endif %}
{%- if audits %}
<section id="audits">
<h2>Do people agree?</h2>
<div class="charts">{% for svg in audits %}{{ chart(svg) }}{% endfor %}</div>
</section>
{%- endif %}
{%- if main %}
<section>
<h2>How it got there</h2>
<div class="charts">{% for svg in main %}{{ chart(svg) }}{% endfor %}</div>
{%- if more %}
<details><summary>{{ more|length }} more {{ "chart" if more|length == 1 else "charts" }}
for a closer look</summary>
<div class="charts">{% for svg in more %}{{ chart(svg) }}{% endfor %}</div></details>
{%- endif %}
{%- if missing %}
<p class="note">Not recorded in this run: {{ missing|join("; ") }}.</p>
{%- endif %}
</section>
{%- endif %}
{%- if signals %}
<section id="signals">
<h2>What moved</h2>
<p class="lead">The guard's signals, those first that moved farthest from where they began. None of them convicts:
an unusual one buys audit labels, with which people decide.</p>
<div class="charts small">{% for svg in signals %}{{ chart(svg) }}{% endfor %}</div>
{%- if more_signals %}
<details><summary>{{ more_signals|length }} more {{ "signal" if more_signals|length == 1 else "signals" }}</summary>
<div class="charts small">{% for svg in more_signals %}{{ chart(svg) }}{% endfor %}</div></details>
{%- endif %}
</section>
{%- endif %}
{%- if dynamics %}
<section id="dynamics">
<h2>Learning dynamics</h2>
<p class="lead">How likely the model finds a fixed set of answers as it learns. Chosen and rejected are the two sides of
a comparison; the argmax is what the model itself would say at each place of the chosen answer. If the argmax rises
while chosen falls, probability is squeezed into what the model says anyway.</p>
{%- for title, svgs in dynamics %}
<details{% if loop.last %} open{% endif %}><summary>{{ title }}</summary>
<div class="charts">{% for svg in svgs %}{{ chart(svg) }}{% endfor %}</div></details>
{%- endfor %}
</section>
{%- endif %}
{%- if main_events %}
<section>
<h2>What happened</h2>
{{ events(main_events) }}
{%- if main_events_left %}
<p class="note">{{ "{:,}".format(main_events_left) }} more in between are not shown here.</p>
{%- endif %}
{%- if all_events|length > main_events|length %}
<details><summary>All {{ "{:,}".format(events_in_all) }} events
{%- if events_in_all > all_events|length %} (the last {{ "{:,}".format(all_events|length) }} of them)
{%- endif %}</summary>
{{ events(all_events) }}</details>
{%- endif %}
</section>
{%- endif %}
{%- if samples.cards %}
<section id="samples">
<h2>The same prompts, before and after</h2>
<p class="lead">{{ samples.prompts_in_all }} fixed
{{ "prompt" if samples.prompts_in_all == 1 else "prompts" }},
answered first at {{ samples.first.label }}
{%- if samples.moments %} and last at {{ samples.moments[-1].label }}{% endif %}.
{%- if samples.moments and samples.shown != samples.moments|length - 1 %} Shown first is the last moment that was
kept: {{ samples.moments[samples.shown].label }}.{% endif %}
{%- if samples.prompts_in_all > samples.cards|length %} The first {{ samples.cards|length }}
are shown.{% endif %}
{%- if samples.moments_in_all > samples.moments|length %} Of {{ samples.moments_in_all }} moments
{{ samples.moments|length }} are shown.{% endif %}</p>
{%- if samples.moments|length > 1 %}
<div class="stepper" hidden>
<button type="button" data-move="-1" aria-label="Earlier">&larr;</button>
<label>Answers at <input type="range" min="0" max="{{ samples.moments|length - 1 }}" step="1"
 value="{{ samples.shown }}"></label>
<button type="button" data-move="1" aria-label="Later">&rarr;</button>
<output>{{ samples.moments[samples.shown].label }}</output>
</div>
{%- endif %}
{%- for card in samples.cards %}
<article class="sample">
<h3><span class="ask">Prompt</span><span class="text" dir="auto">{{ card.prompt }}</span></h3>
{{- cut(card.prompt_omitted) }}
<div class="pair">
<div class="answer"><h4>Before <span>step {{ samples.first.step }}</span></h4>{{ answer(card.before) }}</div>
{%- for item in card.after %}
{%- set moment = samples.moments[loop.index0] %}
<div class="answer after" data-moment="{{ loop.index0 }}" data-label="{{ moment.label }}"
{%- if loop.index0 != samples.shown %} hidden{% endif %}><h4>After
<span>step {{ moment.step }}{% if moment.undone %}, undone{% endif %}</span></h4>
{{- answer(item) }}</div>
{%- endfor %}
</div>
</article>
{%- endfor %}
</section>
{%- endif %}
<section class="folds">
{%- if timings %}
<details><summary>Time by phase</summary>
<table><thead><tr><th>Phase</th><th class="num">in all</th><th class="num">a step</th>
<th class="num">share</th><th class="bar"><span class="hidden">share drawn</span></th></tr></thead>
<tbody>
{%- for row in timings %}
<tr><td>{{ row.phase }}</td><td class="num">{{ row.total }}</td><td class="num">{{ row.mean }}</td>
<td class="num">{{ row.share }}</td><td class="bar"><svg width="120" height="10" aria-hidden="true">
<rect width="{{ row.bar }}" height="10" rx="2"/></svg></td></tr>
{%- endfor %}
</tbody></table></details>
{%- endif %}
{%- if config %}
<details><summary>Config</summary><pre dir="ltr">{{ config }}</pre>{{ cut(config_omitted) }}</details>
{%- endif %}
<details><summary>How to read this page</summary>
<dl class="words">
{%- for term, name, meaning in glossary %}
<div><dt>{{ term }}{% if name %} <code>{{ name }}</code>{% endif %}</dt><dd>{{ meaning }}</dd></div>
{%- endfor %}
</dl></details>
</section>
</main>
<script>{{ script|safe }}</script>
</body>
</html>
"""
