// The curves of the runs in #data, by step, epoch or seconds, with a ring at the best validation.
const { runs, measure } = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement, place = document.getElementById("curves");
const axes = ["step", "epoch", "seconds"], keys = ["loss", measure, "learning_rate"];
const palette = ["#4c78a8", "#e08a00", "#2e9d60", "#c82828", "#9467bd", "#8c8c8c"];
let axis = "epoch", plots = [];
const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const written = (key, value) =>
  value == null ? "–" : key === "accuracy" ? `${+(100 * value).toFixed(2)}%` : `${+value.toPrecision(4)}`;
const lines = (key) => runs.flatMap((run, n) => ["train", "validation"]
  .filter((split) => run[split].step.length && (key !== "learning_rate" || split === "train"))
  .map((split) => ({ run, n, split, x: run[split][axis], y: run[split][key] })));
function series(key, { run, n, split, y }) {
  const held = split === "validation", alone = runs.length === 1, own = key === "learning_rate" ? "--rate" : `--${split}`;
  return {
    label: alone ? split : `${run.name}, ${split}`, value: (_, value) => written(key, value), spanGaps: true,
    stroke: alone ? () => colour(own) : palette[n % palette.length], width: held ? 2.5 : 1.25,
    dash: [[], [8, 3], [2, 3]][n % 3], // Without colours, too, runs differ.
    points: { show: y.length <= 40, size: held ? 8 : 4 },
  };
}
function mark(key, { ctx, bbox, valToPos }) {
  const zoom = devicePixelRatio, at = axes.indexOf(axis), row = keys.indexOf(key) + 3, ink = colour("--ink");
  Object.assign(ctx, { strokeStyle: ink, fillStyle: ink, lineWidth: zoom, font: `${11 * zoom}px sans-serif` });
  for (const { stops, best } of runs) {
    ctx.beginPath();
    if (best && row < 5) ctx.arc(valToPos(best[at], "x", true), valToPos(best[row], "y", true), 8 * zoom, 0, 7);
    ctx.stroke();
    for (const stop of stops) {
      const x = valToPos(stop[at], "x", true);
      ctx.stroke(new Path2D(`M${x} ${bbox.top}v${bbox.height}`));
      ctx.fillText(stop[3], x + 4 * zoom, bbox.top + 12 * zoom);
    }
  }
}
function draw(width = place.clientWidth) {
  plots.forEach((each) => each.destroy());
  const look = { stroke: () => colour("--ink"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false } };
  plots = keys.map((key) => {
    const shown = lines(key), values = shown.flatMap(({ y }) => y).filter((v) => v != null);
    const low = values.reduce((a, b) => Math.min(a, b), Infinity), steep = key === "loss" && low > 0 && values.some((v) => v > 10 * low);
    return new uPlot({
      title: key.replace("_", " ").replace("r2", "R2"), width, height: 260, cursor: { sync: { key: "curves" } },
      scales: { x: { time: false }, y: { distr: steep ? 3 : 1 } }, hooks: { draw: [(plot) => mark(key, plot)] },
      axes: [{ ...look, size: 30 }, { ...look, size: 64, values: (_, ticks) => ticks.map((v) => (v == null ? "" : written(key, v))) }],
      series: [{ label: axis, value: (_, v) => written("", v) }, ...shown.map((each) => series(key, each))],
    }, uPlot.join(shown.map(({ x, y }) => [x, y])), place);
  });
}
if (lines("loss").length) {
  place.textContent = "";
  document.querySelectorAll("[name=axis]").forEach((each) => { each.onchange = () => { axis = each.value; draw(); }; });
  matchMedia("(prefers-color-scheme: dark)").onchange = onresize = () => draw();
  onbeforeprint = () => { root.classList.add("paper"); draw(660); };
  onafterprint = () => { root.classList.remove("paper"); draw(); };
  draw();
}
