"""The HTML of a pipeline's report: all is escaped, only our own drawings, style and script are not."""

PIPELINE_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{{ name }} - Holdfast pipeline report</title>
<style>{{ style|safe }}</style>
</head>
<body>
<main>
{%- macro chart(svg) %}<figure class="chart">{{ svg|safe }}</figure>{% endmacro %}
<header>
<p class="kicker">Holdfast pipeline report</p>
<h1><bdi>{{ name }}</bdi></h1>
<p class="facts">{% for key, value in facts %}<span>{{ key }} <b>{{ value }}</b></span>{% endfor %}</p>
<p class="result">{{ result }}</p>
</header>
<section id="stages">
<h2>Stage by stage</h2>
<table class="rounds">
<thead><tr><th>Stage</th><th>from</th><th>Gold</th><th>People prefer it to SFT</th><th>KL to SFT</th><th>Length</th>
<th>Labels</th><th>Audits</th><th>Tokens sampled / trained on</th><th></th></tr></thead>
<tbody>
{%- for row in rows %}
<tr><td class="round" data-label="Stage"><a href="{{ row.report }}">{{ row.label }}</a></td>
<td data-label="from">{{ row.start }}</td><td class="people" data-label="Gold">{{ row.gold }}</td>
<td class="people" data-label="People prefer it to SFT">{{ row.people }}</td>
<td class="people" data-label="KL to SFT">{{ row.kl }}</td>
<td class="people" data-label="Length">{{ row.length }}</td><td data-label="Labels">{{ row.labels }}</td>
<td data-label="Audits">{{ row.audits }}</td><td class="people" data-label="Tokens">{{ row.tokens }}</td>
<td class="deeds">{{ row.note }}</td></tr>
{%- endfor %}
</tbody></table>
<p class="legend">± and brackets: 95% interval over held-out prompts. Gold is known in a made-up world only. Labels:
answers of people to train on; audits: those of the guard, and those that compare a stage with SFT.</p>
</section>
{%- if charts %}
<section>
<h2>What each stage left</h2>
<div class="charts">{% for svg in charts %}{{ chart(svg) }}{% endfor %}</div>
</section>
{%- endif %}
{%- if side %}
<section id="dynamics">
<h2>The stages side by side</h2>
<p class="lead">The same answers, probed in every stage: summed log-probs of the better and the worse of two answers, of
another prompt's answer, and of the likeliest token at each place of the better one (argmax). Heights are each chart's
own.</p>
<div class="charts small">{% for svg in side %}{{ chart(svg) }}{% endfor %}</div>
</section>
{%- endif %}
{%- for title, svgs in dynamics %}
<section>
<h2>{{ title }}: learning dynamics</h2>
<div class="charts">{% for svg in svgs %}{{ chart(svg) }}{% endfor %}</div>
</section>
{%- endfor %}
</main>
<script>{{ script|safe }}</script>
</body>
</html>
"""
