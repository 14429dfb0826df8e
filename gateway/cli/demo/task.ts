/** The task of the demo, which the program `story-agent` and the client loop both carry out. */
interface Task {
  readonly prompt: string;
  readonly turns: number;
  /** Each draft of a turn begins with one of these; the story goes on with the longest draft. */
  readonly openings: readonly string[];
  /** Sentences, one of which the tool adds in each turn. */
  readonly events: readonly string[];
  readonly maxTokens: number;
  readonly model: string;
}

export const TASK: Omit<Task, 'model'> = {
  prompt: 'Once upon a time, there was a little dog named Max.',
  turns: 5,
  openings: [' He', ' Then', ' But'],
  events: [
    ' Suddenly, it began to rain.',
    ' A big bird came to the tree.',
    ' His friend Lily called him.',
    ' There was a red ball on the grass.',
    ' The sun was very hot.',
  ],
  maxTokens: 24,
};

/** One run of the task, as its client saw it. */
export interface Run {
  readonly text: string;
  readonly ms: number;
  /** HTTP requests. */
  readonly requests: number;
  /** Tokens that the model wrote, drafts included. */
  readonly tokens: number;
  /** Tokens of all prompts that the client sent. */
  readonly promptTokens: number;
}

/** The task and the options for one side of the demo: the program or the client loop. */
export interface Side {
  readonly task: Task;
  /** Time added to each request, as a network between client and platform would add it. */
  readonly roundTripMs: number;
  /** Called with each piece of the story. */
  readonly show: (text: string) => void;
  readonly signal: AbortSignal;
}
