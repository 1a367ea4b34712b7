/** A small bar chart with its axes, and with its numbers as text for those who do not see it. */

import { count } from "../lib/format.ts";

interface Series { name: string; tone: string; values: number[] }
interface Props {
  title: string;
  /** One a bar, such as `06:00`. */
  labels: string[];
  series: Series[];
  /** A value with its unit. */
  format?: (value: number) => string;
}

const [WIDTH, HEIGHT] = [480, 120];
/** Which of the labels are shown: every sixth hour. */
const EVERY = 6;
const ZONE = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts().find(({ type }) => type === "timeZoneName")?.value ?? "";

/** The next number that a person reads at a glance: 1, 2 or 5 with zeros. */
export function roundUp(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return unit * ([1, 2, 5, 10].find((step) => value <= step * unit) ?? 10);
}

export function Chart({ title, labels, series, format = count }: Props) {
  const totals = labels.map((_, index) => series.reduce((sum, { values }) => sum + values[index], 0));
  const most = roundUp(Math.max(...totals));
  const step = WIDTH / labels.length;
  return (
    <figure class="chart">
      <figcaption>{title} <span class="quiet">{ZONE}</span></figcaption>
      <div class="plot">
        <div class="y-axis" aria-hidden="true">{[most, most / 2, 0].map((value) => <span key={value}>{value ? format(value) : "0"}</span>)}</div>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${title}: ${labels.map((label, index) => `${label} ${format(totals[index])}`).join(", ")}`} preserveAspectRatio="none">
          {[0, 0.5, 1].map((part) => <line key={part} class="grid" x1={0} x2={WIDTH} y1={HEIGHT * part} y2={HEIGHT * part} />)}
          {labels.map((label, index) => {
            let top = HEIGHT;
            return series.map(({ name, tone, values }) => {
              const height = (values[index] / most) * HEIGHT;
              top -= height;
              return height > 0 && <rect key={`${name}${label}`} class={`fill-${tone}`} x={index * step + 1} y={top} width={Math.max(1, step - 2)} height={height}><title>{`${label}: ${format(values[index])} ${name}`}</title></rect>;
            });
          })}
        </svg>
        <div class="x-axis" aria-hidden="true">{labels.map((label, index) => Number.parseInt(label, 10) % EVERY === 0 && <span key={label} style={{ left: `${(100 * (index + 0.5)) / labels.length}%` }}>{label}</span>)}</div>
      </div>
      {series.length > 1 && <div class="legend">{series.map(({ name, tone }) => <span key={name}><i class={`swatch back-${tone}`} /> {name}</span>)}</div>}
    </figure>
  );
}
