import type { UsageRow } from '../resources/quotas.ts';

const COLUMNS = [
  'at',
  'tenant',
  'function',
  'requests',
  'invocations',
  'succeeded',
  'failed',
  'cancelled',
  'inputTokens',
  'outputTokens',
  'cachedTokens',
  'gpuMs',
  'cpuMs',
  'wallMs',
  'queuedMs',
  'pageSeconds',
] as const satisfies readonly (keyof UsageRow)[];

/** Usage as CSV (RFC 4180) with a header line. No value has a comma or a quote: names of tenants and functions are plain. */
export function usageCsv(rows: readonly UsageRow[]): string {
  const lines = [COLUMNS.join(','), ...rows.map((row) => COLUMNS.map((column) => row[column] ?? '').join(','))];
  return `${lines.join('\r\n')}\r\n`;
}
