import type { DeployPlan, Difference, Share } from '../app/control.ts';
import type { Deployed } from '../client/client.ts';
import type { Built } from './builder.ts';
import { bytes, duration } from './format.ts';

/** Outcome of a build and deploy. */
export interface Deployment {
  readonly deployed: Deployed;
  /** Null for a script or component, which needs no build. */
  readonly built: Built | null;
  readonly bytes: number;
  readonly deployMs: number;
}

/** Report of a deploy, printed below the line with the version. */
export function reportLines({ deployed, built }: Deployment): string[] {
  const { report, alias, grants } = deployed;
  const { moduleBytes, steps, buildMs } = report;
  const isScript = deployed.engine !== undefined;
  // This machine bundles or compiles the source (`compileTexts`). The platform then evaluates the script, or builds modules from the component.
  const compileTexts = built === null ? [] : [`made here in ${duration(built.buildMs)}`];
  const stepsText = steps.length === 0 ? '' : ` (${steps.map(({ name, ms }) => `${name} ${duration(ms)}`).join(', ')})`;
  const buildTexts: string[] = [];
  if (report.cached) buildTexts.push('its build was found');
  else if (buildMs !== null) buildTexts.push(`built in ${duration(buildMs)}${stepsText}`);
  const starts = [
    ...(report.coldStartMs === null ? [] : [`cold ${shortDuration(report.coldStartMs)}`]),
    ...(report.warmStartMs === null
      ? []
      : [`warm ${shortDuration(report.warmStartMs)} (a ready instance taken from the pool)`]),
  ];
  return [
    row(
      isScript ? 'script' : 'component',
      `${bytes(report.componentBytes)}${moduleBytes === null ? '' : `, ${bytes(moduleBytes)} of ${isScript ? 'heap' : 'modules'}`}`,
    ),
    ...lineIf(compileTexts.length + buildTexts.length > 0, row('build', [...compileTexts, ...buildTexts].join(', '))),
    ...lineIf(starts.length > 0, row('start', starts.join(', '))),
    row(
      'serves',
      alias === null ? 'nothing: the traffic was left alone' : `${alias.alias} ${sharesText(alias.shares)}`,
    ),
    ...grants.map((grant, i) => row(i === 0 ? 'may' : '', grant)),
  ];
}

/** Report of a planned deploy. */
export function planLines(plan: DeployPlan): string[] {
  const { alias, from, version, exists, grants, changes } = plan;
  const trafficText = from.length === 0 ? `would serve ${version}` : `${sharesText(from)} → ${version}`;
  return [
    row('size', bytes(plan.componentBytes)),
    row('version', exists ? 'exists already' : 'would be a new one'),
    row('serves', alias === null ? 'nothing: the traffic would be left alone' : `${alias}: ${trafficText}`),
    ...grants.map((grant, i) => row(i === 0 ? 'may' : '', grant)),
    ...(from.length > 0 && changes.length === 0 ? [row('changes', 'nothing')] : []),
    ...(from.length === 0 ? [] : differenceLines(changes)),
  ];
}

/** Differences, one per line. */
export function differenceLines(changes: readonly Difference[]): string[] {
  return changes.map(({ field, from, to }) => {
    if (from === null) return `  + ${field}: ${to ?? ''}`;
    return to === null ? `  - ${field}: ${from}` : `  ~ ${field}: ${from} → ${to}`;
  });
}

/** The version of a single share, such as `3f9ac41e07b2`, or several with their weights: `3f9ac41e07b2 90 %, 9c1b… 10 %`. */
export function sharesText(shares: readonly Share[]): string {
  if (shares.length === 1) return shares[0]?.version ?? '';
  return shares.map(({ version, weight }) => `${version} ${weight} %`).join(', ');
}

/** A short time, with as many digits as it needs. */
function shortDuration(ms: number): string {
  return ms < 10 ? `${ms.toFixed(ms < 1 ? 3 : 1)} ms` : duration(ms);
}

const row = (name: string, text: string): string => `  ${name.padEnd(10)}${text}`;

const lineIf = (condition: boolean, line: string): string[] => (condition ? [line] : []);
