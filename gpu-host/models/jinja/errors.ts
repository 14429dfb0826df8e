/** A template that cannot be compiled, or a rendering that failed. The message ends with the line of the template, if it is known. */
export class TemplateError extends Error {
  override readonly name = 'TemplateError';
  /** Line of the template, from 1. */
  readonly line: number | undefined;

  constructor(message: string, line?: number) {
    super(line === undefined ? message : `${message} (line ${line} of the template)`);
    this.line = line;
  }

  /** The same error with its line, unless it has one. */
  at(line: number): TemplateError {
    return this.line === undefined ? new TemplateError(this.message, line) : this;
  }
}
