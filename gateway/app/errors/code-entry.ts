/** One error code: its HTTP status and its documentation. */
export interface CodeEntry {
  readonly status: ErrorStatus;
  /** The same for every occurrence (RFC 9457, `title`). */
  readonly title: string;
  /** Remedy, used when an occurrence brings no hint of its own. */
  readonly hint: string;
  /** Body of the documentation page: cause and background. */
  readonly explanation: string;
  /** OpenAI's name for the error. Programs that were written for OpenAI's API match on this name. Absent when OpenAI has none. */
  readonly openAiCode?: string;
}

export type ErrorStatus = 400 | 401 | 403 | 404 | 405 | 408 | 409 | 413 | 414 | 415 | 422 | 429 | 431 | 500 | 503 | 504;
