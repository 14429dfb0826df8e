/** One frame of a server-sent event stream (WHATWG HTML, section 9.2). */
export interface Frame {
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

/** Parses text into frames and drops comments (heartbeats). */
export class EventSourceParserStream extends TransformStream<string, Frame> {
  constructor() {
    let rest = '';
    super({
      transform(chunk, controller) {
        const blocks = (rest + chunk).split('\n\n');
        rest = blocks.pop() ?? '';
        for (const block of blocks) {
          const frame = parse(block);
          if (frame !== null) controller.enqueue(frame);
        }
      },
    });
  }
}

function parse(block: string): Frame | null {
  const fields = { id: '', event: 'message', data: [] as string[] };
  for (const line of block.split('\n')) {
    const [, name, value] = /^([a-z]*): ?(.*)$/.exec(line) ?? [];
    if (name === 'data') fields.data.push(value ?? '');
    else if (name === 'id' || name === 'event') fields[name] = value ?? '';
  }
  return fields.data.length === 0 ? null : { ...fields, data: fields.data.join('\n') };
}
