/** A small bar chart, with its numbers as text for those who do not see it. */

import { count } from "../lib/format.ts";

interface Series { name: string; tone: string; values: number[] }
interface Props { title: string; labels: string[]; series: Series[]; format?: (value: number) => string }

const [WIDTH, HEIGHT] = [480, 96];

export function Chart({ title, labels, series, format = count }: Props) {
  const totals = labels.map((_, index) => series.reduce((sum, { values }) => sum + values[index], 0));
  const highest = Math.max(0, ...totals);
  const most = Math.max(1, highest);
  const step = WIDTH / labels.length;
  return (
    <figure class="chart">
      <figcaption>{title}{!highest && <span class="quiet"> none</span>}</figcaption>
      <div class="chart-axis quiet" aria-hidden="true"><span>{highest ? format(most) : ""}</span></div>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${title}: ${labels.map((label, index) => `${label} ${format(totals[index])}`).join(", ")}`} preserveAspectRatio="none">
        {labels.map((label, index) => {
          let top = HEIGHT;
          return series.map(({ name, tone, values }) => {
            const height = (values[index] / most) * (HEIGHT - 2);
            top -= height;
            return <rect key={`${name}${label}`} class={`fill-${tone}`} x={index * step + 1} y={top} width={Math.max(1, step - 2)} height={height}><title>{`${label}: ${format(values[index])} ${name}`}</title></rect>;
          });
        })}
      </svg>
      <div class="chart-axis quiet"><span>{labels[0]}</span><span>{labels[Math.floor(labels.length / 2)]}</span><span>{labels[labels.length - 1]}</span></div>
      {series.length > 1 && <div class="legend">{series.map(({ name, tone }) => <span key={name}><i class={`swatch back-${tone}`} /> {name}</span>)}</div>}
    </figure>
  );
}
