# One image for the master, the workers and the command line; docker-compose.yml says which it is.
# Any base will do that has Debian's useradd, ca-certificates and Python 3.11 or later with venv.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS build
# Behind a mirror or an inspecting proxy: pip's own settings, and the organisation's CA certificate as PEM text.
# Arguments, because the classic builder has no secrets; they end with this stage, the image does not hold them.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG CA_CERTIFICATE
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN [ -z "$CA_CERTIFICATE" ] || printf '\n%s\n' "$CA_CERTIFICATE" >> "$PIP_CERT"

# pip stays behind in this stage, pinned: before 26.1 it refused version ranges under constraints that carry hashes.
RUN python3 -m venv /opt/pip && /opt/pip/bin/pip install "pip==26.3" && python3 -m venv --without-pip /opt/loopline
ENV PATH=/opt/pip/bin:$PATH

# The locked dependencies first, as a layer that changes only with them. They are named without the project,
# because a source tree has no hash, and one hash among the constraints makes pip ask for all.
WORKDIR /src
COPY pyproject.toml requirements/all.txt ./
ARG EXTRAS="master worker postgres s3"
RUN python3 -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
    extras = [project['optional-dependencies'][name] for name in '$EXTRAS'.split()]; \
    print(*sum(extras, project['dependencies']), sep='\n')" > /tmp/requirements.txt \
    && pip --python /opt/loopline/bin/python install -c all.txt -r /tmp/requirements.txt
COPY . .
RUN pip --python /opt/loopline/bin/python install --no-deps .

FROM ${BASE_IMAGE}
# Volumes take their owner from these folders; none is declared, for Docker would leave one behind for each container.
# All state is below the home folder: /data, which tasks of other users have to pass through. service.py is the first
# process of a worker whose tasks have users of their own.
RUN useradd --uid 10001 --user-group --home-dir /data --no-create-home --shell /usr/sbin/nologin loopline \
    && install -d -m 0700 -o loopline -g loopline /join \
    && install -d -m 0711 -o loopline -g loopline /data
COPY --from=build /opt/loopline /opt/loopline
RUN ln -s /opt/loopline/lib/python3*/site-packages/loopline_worker/supervisor/users/service.py /opt/loopline/service.py
ENV PATH=/opt/loopline/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
EXPOSE 7461
ENTRYPOINT ["loopline"]
CMD ["--help"]
