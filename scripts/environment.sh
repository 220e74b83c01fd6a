# Sourced by the other scripts: makes .venv from requirements.lock, or reuses it, and puts it first on
# PATH. A set-up that was interrupted or failed leaves no stamp and is done anew. Needs `set -e`.

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
environment="$project/.venv"

# The place counts too: programs of an environment that was moved no longer start.
_stamp_of() { { cat "$@" && echo "$environment"; } | sha256sum | cut -d' ' -f1; }

_make_environment() {
  local python=${PYTHON:-python3} packages project_files
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "requirements.lock needs Python 3.11 or newer, but '$python' is $("$python" --version 2>&1):" \
      "set PYTHON to a newer one, or see docs/installation.md for 3.10." >&2
    return 1
  }
  packages=$(_stamp_of "$project/requirements.lock")
  if [ "$(cat "$environment/.packages" 2>/dev/null)" != "$packages" ]; then
    echo "Setting up .venv: about 6 GB of packages (torch brings CUDA's), some minutes."
    # It may be that of the environment itself, which goes now: take the one that it was made with.
    python=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
    rm -rf "$environment"
    "$python" -m venv "$environment"
    "$environment/bin/python" -m pip install --disable-pip-version-check --upgrade \
      pip==26.3 setuptools==84.2.1 wheel==0.48.0
    # The lock file is complete; solo-learn's own pins from 2021 could not be resolved beside it.
    "$environment/bin/python" -m pip install --no-deps --requirement "$project/requirements.lock"
    echo "$packages" > "$environment/.packages"
  fi
  project_files=$(_stamp_of "$project/setup.cfg" "$project/pyproject.toml")
  if [ "$(cat "$environment/.project" 2>/dev/null)" != "$project_files" ]; then
    "$environment/bin/python" -m pip install --quiet --no-deps --no-build-isolation \
      --editable "$project"
    echo "$project_files" > "$environment/.project"
  fi
}

# Two scripts started at once must not build the same environment.
exec 9> "$project/.venv.lock"
flock --nonblock 9 || {
  echo "Waiting for another set-up of .venv to end."
  flock 9
}
# Plain, not before "||": there bash would go on after a failed command, and stamp what is not there.
_make_environment
flock --unlock 9
export PATH="$environment/bin:$PATH" VIRTUAL_ENV="$environment"
