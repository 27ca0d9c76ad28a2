import { SearchField } from "../lists/SearchField";
import { setWords, useWord } from "../router";
import { caller, maySubmit } from "../session/session";
import { Button } from "../ui/Button";
import type { Filter } from "./feed";

/** What of the timeline is wanted, as the address has it. A job is a number: other text is no filter. */
export function useTimelineFilter(): Filter {
  const [job] = useWord("job");
  const [user] = useWord("user");
  const [worker] = useWord("worker");
  return { job: Number(job) || undefined, user: user ?? undefined, worker: worker ?? undefined };
}

/** Chooses one job, one user or one worker. */
export function Finder() {
  const { user } = useTimelineFilter();
  const self = caller.value?.name;
  const isMine = user !== undefined && user === self;
  return (
    <div class="finder" role="search" aria-label="Attempts">
      <SearchField name="job" label="Only this job" placeholder="Job, such as 12" />
      <SearchField name="user" label="Only jobs of this user" placeholder="User" />
      <SearchField name="worker" label="Only this worker" placeholder="Worker" />
      {maySubmit.value && self && (
        <Button isPressed={isMine} onClick={() => setWords({ user: isMine ? null : self })}>
          Mine
        </Button>
      )}
    </div>
  );
}
