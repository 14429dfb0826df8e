/** Result of one check. */
export interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'warning' | 'failed';
  readonly detail: string;
  readonly advice?: string;
}
