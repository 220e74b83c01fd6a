"""What is particular to release 1.0.2 from the package registry."""

import pytest

from solo_margins import host

pytestmark = pytest.mark.skipif(host.FORM != "pypi", reason="solo-learn's repository is in use")


@pytest.mark.parametrize("name", ["dino", "wmse", "mae", "supcon", "nnclr", "simsiam"])
def test_a_method_that_the_release_lacks_names_the_version_that_has_it(name):
    assert name not in host.METHODS
    with pytest.raises(NotImplementedError, match=f"'{name}'.*repository") as error:
        host.METHODS[name]
    assert str(error.value).count(". ") == 0
    class_name = {v: k for k, v in host.OTHER_METHODS.items()}[name]
    with pytest.raises(NotImplementedError, match=name):
        getattr(host, class_name)
    with pytest.raises(KeyError):
        host.METHODS["nonsense"]


def test_a_backbone_that_the_release_lacks_names_the_version_that_has_it(config):
    cfg = config("simclr", "backbone.name=convnext_tiny")
    with pytest.raises(NotImplementedError, match=r"convnext_tiny.*repository"):
        host.SimCLR(cfg)


def test_a_setting_that_the_release_needs_is_named(config):
    cfg = config("simclr")
    del cfg.method_kwargs.temperature
    with pytest.raises(ValueError, match=r"method_kwargs\.temperature"):
        host.SimCLR(cfg)
